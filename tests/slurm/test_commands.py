"""Calls of Slurm's commands: parsing, rate, and errors that a restarted slurmctld causes."""

from datetime import UTC, datetime

import pytest

from onejob.node.options import SlurmOptions
from onejob.node.slurm import commands
from onejob.node.slurm.commands import QueuedJob, SlurmError, SlurmQueue, parse_jobs
from onejob.node.slurm.sizing import Shape
from tests.slurm.stand_in import StandIn

NOW = datetime(2026, 3, 1, 0, 0, 30, tzinfo=UTC)


def a_queue(interval: float = 0.0) -> SlurmQueue:
    return SlurmQueue("onejob-", interval, lambda: NOW)


async def submitted(name: str = "onejob-a") -> str:
    argv = commands.submission(
        Shape(), SlurmOptions(), name=name, folder="/dev/null/..", capacity={"cpu": 1000}
    )
    argv[argv.index("--output=/dev/null/../output")] = "--output=/dev/null"
    return await commands.submit(argv, "#!/bin/sh\nsleep 100\n")


def test_jobs_of_others_and_their_reasons_are_parsed() -> None:
    text = "7|onejob-a|PENDING|QOSMaxCpuPerUserLimit|\n8|other|RUNNING|None|n1\n\n"
    assert parse_jobs(text, "onejob-") == {
        "onejob-a": QueuedJob("7", "onejob-a", "PENDING", "QOSMaxCpuPerUserLimit")
    }


@pytest.mark.parametrize("state", ["CANCELLED by 1000", "TIMEOUT", "NODE_FAIL", "PREEMPTED"])
def test_states_of_accounting_that_end_a_job_are_recognized(state: str) -> None:
    (job,) = parse_jobs(f"7|onejob-a|{state}|None|n1", "onejob-").values()
    assert job.over


@pytest.mark.parametrize("state", ["PENDING", "RUNNING", "COMPLETING", "SUSPENDED", "REQUEUED"])
def test_other_states_do_not_end_a_job(state: str) -> None:
    (job,) = parse_jobs(f"7|onejob-a|{state}|None|n1", "onejob-").values()
    assert not job.over


async def test_queries_never_name_jobs(slurm_stand_in: StandIn) -> None:
    """`squeue --jobs` fails with "Invalid job id specified" after a restart of slurmctld without
    its state (hyperqueue#764)."""
    await submitted()
    queue = a_queue()
    await queue.refresh(["onejob-a"])
    assert queue.jobs["onejob-a"].state == "RUNNING"
    slurm_stand_in.set(forget=True)
    await queue.refresh(["onejob-a"])
    assert (queue.jobs, queue.problem, queue.answers) == ({}, "", 2)
    squeues = [call for call in slurm_stand_in.calls if call[0] == "squeue"]
    assert not [word for call in squeues for word in call if word.startswith(("-j", "--job"))]


async def test_accounting_is_asked_with_a_start_time(slurm_stand_in: StandIn) -> None:
    """Without one, sacct lists jobs since midnight only (snakemake#1227)."""
    await submitted()
    slurm_stand_in.set(forget=True, accounting="1|onejob-a|TIMEOUT|None|n1")
    queue = a_queue()
    await queue.refresh(["onejob-a"])
    assert queue.jobs["onejob-a"].state == "TIMEOUT"
    (call,) = [call for call in slurm_stand_in.calls if call[0] == "sacct"]
    assert "--starttime=2026-02-27T00:00" in call


async def test_a_failed_query_keeps_the_last_answer(slurm_stand_in: StandIn) -> None:
    await submitted()
    queue = a_queue()
    await queue.refresh()
    slurm_stand_in.set(unreachable="Unable to contact slurm controller (connect failure)")
    await queue.refresh()
    assert queue.jobs["onejob-a"].state == "RUNNING"
    assert (queue.answers, queue.queries) == (1, 2)
    assert "Unable to contact" in queue.problem


async def test_queries_are_limited_in_rate_whatever_the_number_of_callers(
    slurm_stand_in: StandIn,
) -> None:
    queue = a_queue(interval=3600)
    asked = [await queue.refresh([f"onejob-{number}"]) for number in range(50)]
    assert asked.count(True) == 1
    assert [call[0] for call in slurm_stand_in.calls] == ["squeue", "sacct"]


async def test_a_rejected_submission_has_slurms_reason(slurm_stand_in: StandIn) -> None:
    slurm_stand_in.set(reject="Batch job submission failed: Invalid account specified")
    with pytest.raises(SlurmError, match=r"^Batch job submission failed: Invalid account") as error:
        await submitted()
    assert not error.value.unreachable


@pytest.mark.parametrize(
    ("reject", "states", "expected"),
    [
        ("Invalid partition name specified", ["idle"], "Invalid partition name specified"),
        ("Requested node configuration is not available", ["idle", "mixed"], "Requested node conf"),
        ("Requested node configuration is not available", ["idle", "down*"], ""),
        ("Requested node configuration is not available", ["unknown"], ""),
        ("Unable to contact slurm controller (connect failure)", ["idle"], ""),
    ],
)
def test_only_a_lasting_rejection_prevents_the_start(
    slurm_stand_in: StandIn, reject: str, states: list[str], expected: str
) -> None:
    """After a restart of slurmctld, no node is available for a moment."""
    slurm_stand_in.set(reject=reject, states=states)
    found = commands.refusal(["sbatch", "--nodes=1"])
    assert found.startswith(expected)
    assert bool(found) == bool(expected)


async def test_an_unreachable_controller_is_told_from_a_rejection(slurm_stand_in: StandIn) -> None:
    slurm_stand_in.set(unreachable="Unable to contact slurm controller (connect failure)")
    with pytest.raises(SlurmError) as error:
        await submitted()
    assert error.value.unreachable
