"""Allocations of the Slurm runtime: their growth and return, losses, restarts, and explanations.

With stand-ins for Slurm's commands; pilots and supervisors are the real ones.
"""

import asyncio
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from onejob.node.runtime import Ended, Lost, Started
from onejob.planning.names import WAITING_FOR_SLURM
from tests.node.support import until_true
from tests.slurm.stand_in import StandIn
from tests.slurm.support import a_trial, kill, pilots, scripts, supervisors

pytestmark = pytest.mark.usefixtures("slurm_stand_in")


def sbatches(slurm: StandIn) -> list[list[str]]:
    return [call for call in slurm.calls if call[0] == "sbatch"]


def gone(pid_file: Path) -> bool:
    """Return whether the process that wrote its PID has ended, even if nobody has reaped it."""
    try:
        stat = Path(f"/proc/{int(pid_file.read_text())}/stat").read_text()
    except FileNotFoundError:
        return True
    return stat.rpartition(") ")[2].startswith("Z")


async def test_pods_share_an_allocation_and_see_it(slurm_stand_in: StandIn, tmp_path: Path) -> None:
    async with a_trial(tmp_path) as trial:
        refs = [trial.launch(f"u{number}", "echo $SLURM_JOB_ID") for number in range(5)]
        for ref in refs:
            ended = await trial.ended(ref)
            assert isinstance(ended, Ended)
            assert ended.exit.code == 0
            assert await trial.output(ref) == "1\n"
    assert len(sbatches(slurm_stand_in)) == 1


async def test_allocations_grow_with_the_requests_up_to_the_maximum(
    slurm_stand_in: StandIn, tmp_path: Path
) -> None:
    async with a_trial(tmp_path, max_nodes=2) as trial:
        refs = [trial.launch(f"u{number}", requests={"cpu": "2"}) for number in range(3)]
        await trial.started(refs[0])
        await trial.started(refs[1])
        await trial.delayed(refs[2], "at most 2 are allowed")
        assert len(sbatches(slurm_stand_in)) == 2
        trial.runtime.stop(refs[0], 0)
        await trial.started(refs[2])
    assert len(sbatches(slurm_stand_in)) == 2


async def test_an_idle_allocation_is_returned_and_another_submitted_when_needed(
    slurm_stand_in: StandIn, tmp_path: Path
) -> None:
    async with a_trial(tmp_path, idle_seconds=0.5) as trial:
        await trial.ended(trial.launch("a", "true"))
        await until_true(lambda: slurm_stand_in.jobs["1"]["state"] == "COMPLETED")
        await trial.ended(trial.launch("b", "true"))
        assert len(sbatches(slurm_stand_in)) == 2


async def test_the_minimum_of_allocations_is_kept(slurm_stand_in: StandIn, tmp_path: Path) -> None:
    async with a_trial(tmp_path, idle_seconds=0.5, min_nodes=1) as trial:
        await until_true(lambda: bool(slurm_stand_in.jobs))
        await trial.ended(trial.launch("a", "true"))
        await trial.ended(trial.launch("b", "sleep 2"))
        assert [job["state"] for job in slurm_stand_in.jobs.values()] == ["RUNNING"]


async def test_annotations_and_requests_select_the_allocation(
    slurm_stand_in: StandIn, tmp_path: Path
) -> None:
    annotations = {"slurm.onejob.dev/partition": "fast", "slurm.onejob.dev/qos": "high"}
    async with a_trial(tmp_path, account="ours", sbatch_options=("--reservation=r",)) as trial:
        await trial.ended(trial.launch("a", "true", annotations=annotations))
        await trial.ended(trial.launch("b", "true", requests={"nvidia.com/gpu": "2"}))
    first, second = sbatches(slurm_stand_in)
    assert {"--partition=fast", "--qos=high", "--account=ours", "--reservation=r"} <= set(first)
    assert "--no-requeue" in first
    assert "--gres=gpu:2" in second
    assert "--partition=fast" not in second


async def test_a_waiting_pod_has_slurms_reason(slurm_stand_in: StandIn, tmp_path: Path) -> None:
    slurm_stand_in.set(hold="QOSMaxCpuPerUserLimit")
    async with a_trial(tmp_path) as trial:
        ref = trial.launch("a", "true")
        await trial.delayed(ref, "allocation 1 is pending: QOSMaxCpuPerUserLimit")
        (event,) = {event.reason for event in trial.events if hasattr(event, "reason")}
        assert event == WAITING_FOR_SLURM
        slurm_stand_in.set()
        await trial.ended(ref)


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"requests": {"cpu": "64"}}, "it requests more cpu than an allocation has"),
        ({"activeDeadlineSeconds": 7200}, "longer than the time limit of an allocation"),
    ],
)
async def test_a_pod_that_fits_no_allocation_is_explained(
    slurm_stand_in: StandIn, tmp_path: Path, spec: dict[str, Any], reason: str
) -> None:
    async with a_trial(tmp_path) as trial:
        await trial.delayed(trial.launch("a", **spec), reason)
    assert sbatches(slurm_stand_in) == []


async def test_a_pod_that_waits_can_be_stopped(slurm_stand_in: StandIn, tmp_path: Path) -> None:
    slurm_stand_in.set(hold="Priority")
    async with a_trial(tmp_path) as trial:
        ref = trial.launch("a")
        await trial.delayed(ref, "Priority")
        trial.runtime.stop(ref, 30)
        ended = await trial.ended(ref)
        assert isinstance(ended, Ended)
        assert ended.exit.message == "stopped before it could be started"
        assert not trial.runtime.running(ref)


async def test_a_refused_submission_is_explained_and_repeated(
    slurm_stand_in: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onejob.node.slurm.fleet._MIN_RETRY_SECONDS", 0.5)
    slurm_stand_in.set(reject="Batch job submission failed: Job violates accounting/QOS policy")
    async with a_trial(tmp_path) as trial:
        ref = trial.launch("a", "true")
        await trial.delayed(ref, "cannot get an allocation: Batch job submission failed: Job viol")
        slurm_stand_in.set()
        await trial.ended(ref)


# --- ends from outside


async def test_pods_of_a_cancelled_allocation_are_disrupted(
    slurm_stand_in: StandIn, tmp_path: Path
) -> None:
    async with a_trial(tmp_path) as trial:
        ref = trial.launch("a", "trap 'exit 9' TERM; echo begun; while :; do sleep 0.1; done")
        await trial.started(ref)
        await until_true(lambda: bool(trial.runtime.is_silent(ref)) is False)
        slurm_stand_in.cancel("1")
        ended = await trial.ended(ref)
        assert isinstance(ended, Ended)
        assert (ended.exit.code, ended.exit.lost) == (9, True)
        assert "Slurm allocation 1 on node standin" in ended.exit.disruption
        again = trial.launch("a2", "true")
        last = await trial.ended(again)
        assert isinstance(last, Ended)
        assert not last.exit.lost
    assert len(sbatches(slurm_stand_in)) == 2


async def test_a_pod_that_slurms_signal_kills_first_is_disrupted(
    slurm_stand_in: StandIn, tmp_path: Path
) -> None:
    """Slurm signals all processes at once: the Pod may end before the pilot has been told."""
    pid = tmp_path / "pid"
    async with a_trial(tmp_path / "data") as trial:
        ref = trial.launch("a", f"echo $$$$ > {pid}; exec sleep 3600")
        await trial.started(ref)
        await until_true(pid.exists)
        kill([int(pid.read_text())], signal.SIGTERM)
        slurm_stand_in.cancel("1")
        ended = await trial.ended(ref)
        assert isinstance(ended, Ended)
        assert ended.exit.lost


async def test_a_pod_that_kills_itself_is_not_disrupted(tmp_path: Path) -> None:
    async with a_trial(tmp_path) as trial:
        ended = await trial.ended(trial.launch("a", "kill -9 $$$$"))
        assert isinstance(ended, Ended)
        assert (ended.exit.code, ended.exit.lost) == (137, False)


async def test_a_pod_that_is_stopped_is_not_disrupted(tmp_path: Path) -> None:
    async with a_trial(tmp_path) as trial:
        ref = trial.launch("a")
        await trial.started(ref)
        trial.runtime.stop(ref, 5)
        ended = await trial.ended(ref)
        assert isinstance(ended, Ended)
        assert (ended.exit.code, ended.exit.lost) == (143, False)


async def test_an_allocation_near_its_time_limit_gets_no_more_pods(
    slurm_stand_in: StandIn, tmp_path: Path
) -> None:
    async with a_trial(tmp_path) as trial:
        first = trial.launch("a", "trap '' USR1; sleep 2; exit 3")
        await trial.started(first)
        kill(pilots(trial.folders[0]), signal.SIGUSR1)
        second = trial.launch("b", "echo $SLURM_JOB_ID")
        await trial.ended(second)
        assert await trial.output(second) == "2\n"
        ended = await trial.ended(first)
        assert isinstance(ended, Ended)
        assert (ended.exit.code, ended.exit.lost) == (3, False)
        await until_true(lambda: slurm_stand_in.jobs["1"]["state"] == "COMPLETED")


# --- deaths


async def test_the_death_of_a_pilot_ends_its_pods_which_are_disrupted(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    async with a_trial(tmp_path / "data") as trial:
        ref = trial.launch("a", f"echo $$$$ > {pid}; exec sleep 3600")
        await trial.started(ref)
        await until_true(pid.exists)
        kill(pilots(trial.folders[0]))
        ended = await trial.ended(ref)
        assert gone(pid)
        assert isinstance(ended, Ended)
        assert ended.exit.lost
        assert "its pilot was killed" in ended.exit.disruption
        assert ended.exit.code == 143


async def test_no_process_survives_the_death_of_pilot_and_supervisor(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    async with a_trial(tmp_path / "data", lost_seconds=600.0) as trial:
        ref = trial.launch("a", f"echo $$$$ > {pid}; exec sleep 3600")
        await trial.started(ref)
        await until_true(pid.exists)
        (folder,) = trial.folders
        # Neither can react to the death of the other.
        kill(pilots(folder), signal.SIGSTOP)
        kill([*supervisors(folder), *pilots(folder)])
        assert isinstance(await trial.ended(ref), Lost)
        assert gone(pid)


async def test_the_death_of_the_batch_script_ends_its_pods_which_are_disrupted(
    tmp_path: Path,
) -> None:
    pid = tmp_path / "pid"
    async with a_trial(tmp_path / "data", lost_seconds=600.0) as trial:
        ref = trial.launch("a", f"echo $$$$ > {pid}; exec sleep 3600")
        await trial.started(ref)
        await until_true(pid.exists)
        kill(scripts(trial.folders[0]))
        ended = await trial.ended(ref)
        assert gone(pid)
        assert isinstance(ended, Ended)
        assert ended.exit.lost


async def test_a_job_that_slurm_starts_twice_executes_no_request_again(
    slurm_stand_in: StandIn, tmp_path: Path
) -> None:
    """slurmctld may be killed before it has saved that the job runs."""
    async with a_trial(tmp_path / "data") as trial:
        await trial.ended(trial.launch("a", f"echo begun >> {tmp_path}/ledger"))
        script = slurm_stand_in.jobs["1"]["script"]
        again = await asyncio.to_thread(
            subprocess.run, ["sh", "-c", script], timeout=60, check=False
        )
        assert again.returncode == 0
        await trial.ended(trial.launch("b", "true"))
    assert (tmp_path / "ledger").read_text() == "begun\n"


async def test_starts_that_the_supervisor_of_a_pilot_has_not_got_are_repeated(
    tmp_path: Path,
) -> None:
    async with a_trial(tmp_path) as trial:
        await trial.ended(trial.launch("a", "true"))
        (folder,) = trial.folders
        kill(pilots(folder), signal.SIGSTOP)
        kill(supervisors(folder))
        ref = trial.launch("b", "exit 7")
        await until_true(lambda: b'"b"' in (folder / "requests").read_bytes())
        kill(pilots(folder), signal.SIGCONT)
        ended = await trial.ended(ref)
        assert isinstance(ended, Ended)
        assert ended.exit.code == 7


async def test_starts_that_a_dead_pilot_has_not_passed_on_are_made_elsewhere(
    slurm_stand_in: StandIn, tmp_path: Path
) -> None:
    async with a_trial(tmp_path) as trial:
        first = trial.launch("a", "true")
        await trial.ended(first)
        (folder,) = trial.folders
        stopped = pilots(folder)
        kill(stopped, signal.SIGSTOP)
        ref = trial.launch("b", "echo $SLURM_JOB_ID")
        await until_true(lambda: b'"b"' in (folder / "requests").read_bytes())
        kill(stopped)
        await trial.ended(ref)
        assert await trial.output(ref) == "2\n"


async def test_the_death_of_a_supervisor_loses_its_pods_and_no_others(
    slurm_stand_in: StandIn, tmp_path: Path
) -> None:
    pid = tmp_path / "pid"
    async with a_trial(tmp_path / "data") as trial:
        ref = trial.launch("a", f"echo $$$$ > {pid}; exec sleep 3600")
        await trial.started(ref)
        await until_true(pid.exists)
        kill(supervisors(trial.folders[0]))
        assert isinstance(await trial.ended(ref), Lost)
        assert gone(pid)
        ended = await trial.ended(trial.launch("b", "true"))
        assert isinstance(ended, Ended)
        assert ended.exit.code == 0
    assert len(sbatches(slurm_stand_in)) == 1


async def test_an_allocation_without_any_process_is_lost_once_slurm_has_ended_it(
    slurm_stand_in: StandIn, tmp_path: Path
) -> None:
    async with a_trial(tmp_path) as trial:
        ref = trial.launch("a", "sleep 3600", terminationGracePeriodSeconds=1)
        await trial.started(ref)
        (folder,) = trial.folders
        kill(pilots(folder), signal.SIGSTOP)
        kill([*scripts(folder), *supervisors(folder), *pilots(folder)])
        lost = await trial.ended(ref)
        assert isinstance(lost, Lost)
        assert "Slurm allocation 1 on node standin: FAILED" in lost.message


async def test_a_silent_allocation_that_slurm_believes_to_run_is_cancelled(
    slurm_stand_in: StandIn, tmp_path: Path
) -> None:
    async with a_trial(tmp_path) as trial:
        ref = trial.launch("a", "sleep 3600", terminationGracePeriodSeconds=1)
        await trial.started(ref)
        kill(pilots(trial.folders[0]), signal.SIGSTOP)
        await until_true(lambda: ["scancel", "1"] in slurm_stand_in.calls)
        # Slurm kills what does not end.
        kill(pilots(trial.folders[0]))
        assert isinstance(await trial.ended(ref), Ended | Lost)


async def test_a_restarted_slurmctld_that_has_forgotten_its_jobs_costs_no_pod(
    slurm_stand_in: StandIn, tmp_path: Path
) -> None:
    async with a_trial(tmp_path) as trial:
        ref = trial.launch("a", f"while [ ! -e {tmp_path}/end ]; do sleep 0.1; done; exit 5")
        await trial.started(ref)
        slurm_stand_in.set(forget=True)
        asked = trial.runtime.queries
        kill(pilots(trial.folders[0]), signal.SIGSTOP)
        await until_true(lambda: trial.runtime.queries >= asked + 3)
        kill(pilots(trial.folders[0]), signal.SIGCONT)
        (tmp_path / "end").touch()
        ended = await trial.ended(ref)
        assert isinstance(ended, Ended)
        assert (ended.exit.code, ended.exit.lost) == (5, False)


async def test_slurm_is_not_asked_about_allocations_that_are_heard_of(
    slurm_stand_in: StandIn, tmp_path: Path
) -> None:
    async with a_trial(tmp_path, lost_seconds=600.0) as trial:
        await trial.ended(trial.launch("a", "true"))
        asked = trial.runtime.queries
        for number in range(20):
            await trial.ended(trial.launch(f"b{number}", "sleep 0.1"))
        assert trial.runtime.queries == asked


# --- restarts of the server


async def test_a_restarted_server_finds_running_and_ended_pods(
    slurm_stand_in: StandIn, tmp_path: Path
) -> None:
    async with a_trial(tmp_path, end_pods=False) as trial:
        runs, ends = trial.launch("runs"), trial.launch("ends", "sleep 1; exit 4")
        await trial.started(runs)
        await trial.started(ends)
    async with a_trial(tmp_path) as trial:
        refs = {event.ref for event in trial.recovered.attempts}
        assert refs == {runs, ends}
        ended = [event for event in trial.recovered.attempts if isinstance(event, Ended)]
        last = ended[0] if ended else await trial.ended(ends)
        assert isinstance(last, Ended)
        assert last.exit.code == 4
        assert trial.runtime.running(runs)
        trial.runtime.stop(runs, 0)
        await trial.ended(runs)
    assert len(sbatches(slurm_stand_in)) == 1


async def test_a_restarted_server_learns_of_an_allocation_that_was_lost_meanwhile(
    tmp_path: Path,
) -> None:
    async with a_trial(tmp_path, end_pods=False) as trial:
        ref = trial.launch("a", "sleep 3600", terminationGracePeriodSeconds=1)
        await trial.started(ref)
        (folder,) = trial.folders
    kill(pilots(folder), signal.SIGSTOP)
    kill([*scripts(folder), *supervisors(folder), *pilots(folder)])
    async with a_trial(tmp_path) as trial:
        assert [type(event) for event in trial.recovered.attempts] == [Started]
        assert isinstance(await trial.ended(ref), Lost)


async def test_a_request_that_a_killed_server_wrote_in_part_is_made_again(tmp_path: Path) -> None:
    async with a_trial(tmp_path, end_pods=False) as trial:
        await trial.ended(trial.launch("a", "true"))
        with (trial.folders[0] / "requests").open("ab") as file:
            file.write(b'{"do":"spawn","items":[{"claim":["b","c",0],"argv":["tou')
    async with a_trial(tmp_path) as trial:
        assert {event.ref.uid for event in trial.recovered.attempts} == {"a"}
        ended = await trial.ended(trial.launch("b", "exit 6"))
        assert isinstance(ended, Ended)
        assert ended.exit.code == 6


async def test_folders_of_allocations_are_removed_once_their_pods_are_forgotten(
    tmp_path: Path,
) -> None:
    async with a_trial(tmp_path, idle_seconds=0.2) as trial:
        await trial.ended(trial.launch("a", "true"))
        trial.runtime.discard("a")
        await until_true(lambda: trial.folders == [])


async def test_times_of_a_node_with_another_clock_are_converted(tmp_path: Path) -> None:
    from onejob.node.slurm.allocation import Allocation, Settings
    from onejob.node.slurm.sizing import Shape

    settings = Settings("n", Shape(), {"pods": 1}, 3600, 60, ends_with_server=False)
    allocation = Allocation.make(tmp_path / "n", settings)
    allocation.spawn([({"claim": ["u", "c", 0]}, None)])
    ahead = time.time_ns() / 1e9 + 3600
    lines = [
        b'{"up":{"job":"1","node":"n1","now":%f}}' % ahead,
        b'{"known":[]}',
        b'{"events":[["exited","u","c",0,%f,%f,0,0,"","",true,0,0]]}' % (ahead + 1, ahead + 2),
    ]
    news = allocation.take(lines, now=50.0, wall=ahead - 3600)
    (record,) = news.records
    assert record[4:6] == pytest.approx([ahead - 3599, ahead - 3598])
