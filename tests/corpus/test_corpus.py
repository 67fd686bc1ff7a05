"""A part of the corpus on the engines that start quickly; `make corpus` runs all of it."""

import asyncio
from pathlib import Path

import pytest

from tests.corpus.cases import cases
from tests.corpus.differences import KNOWN, differing, unknown
from tests.corpus.engines import ENGINES
from tests.corpus.running import Outcome, describe, run
from tests.slurm.stand_in import StandIn

QUICK = {name: case for name, case in cases().items() if case.quick}


async def outcomes(name: str, folder: Path) -> dict[str, Outcome]:
    async with ENGINES[name](folder / name) as engine:
        return await run(engine, QUICK, folder / name)


async def test_jobs_end_the_same_way_as_processes_on_slurm_and_through_the_mirror(
    slurm_stand_in: StandIn, tmp_path: Path
) -> None:
    # At the same time: most of it is back-off.
    reference, slurm, mirror = await asyncio.gather(
        *(outcomes(name, tmp_path) for name in ("process", "slurm", "mirror"))
    )
    assert not [name for name, outcome in reference.items() if "stuck" in outcome]
    assert unknown("slurm", reference, slurm) == {}
    assert unknown("mirror", reference, mirror) == {}
    assert slurm_stand_in.jobs


def test_the_corpus_is_large_and_its_known_differences_are_of_its_cases() -> None:
    assert len(cases()) >= 60
    assert {known.case for known in KNOWN} <= set(cases())
    assert {known.engine for known in KNOWN} <= set(ENGINES)


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ({"succeeded": 1}, set()),
        ({"succeeded": 2}, {"succeeded"}),
        ({"succeeded": 1, "failed": 1}, {"failed"}),
    ],
)
def test_outcomes_differ_by_field(other: Outcome, expected: set[str]) -> None:
    assert differing({"succeeded": 1}, other) == expected


def test_an_outcome_has_what_engines_must_agree_on() -> None:
    failed = {"type": "Failed", "status": "True", "reason": "PodFailurePolicy", "message":
              "Container main for pod a/a-0-x7k2p failed with exit code 42"}  # fmt: skip
    job = {"status": {"conditions": [failed], "failed": 1, "startTime": "t", "ready": 0}}
    ended = {"terminated": {"exitCode": 42, "reason": "Error", "message": "so"}}
    pod = {
        "metadata": {"annotations": {"batch.kubernetes.io/job-completion-index": "0"}},
        "status": {
            "phase": "Failed",
            "containerStatuses": [{"name": "main", "state": ended, "restartCount": 2}],
        },
    }
    message = "Container main for pod a/a-0-* failed with exit code 42"
    assert describe(job, [pod]) == {
        "conditions": [["Failed", "True", "PodFailurePolicy", message]],
        "failed": 1,
        "startTime": True,
        "completionTime": False,
        "pods": [["0", "Failed", "", False, [["main", 42, "Error", "so", 2]]]],
    }
