"""Rounds of kills: what the comparison of ledger and API detects, and a few rounds."""

from typing import Any

import pytest

from tests.slurm.cluster import NEEDS_SLURM
from tests.slurm.rounds import find_problems, play_rounds

Document = dict[str, Any]


def a_pod(code: int, *, disrupted: bool = False) -> Document:
    conditions = [{"type": "DisruptionTarget", "status": "True"}] if disrupted else []
    state = {"terminated": {"exitCode": code}}
    return {"status": {"conditions": conditions, "containerStatuses": [{"state": state}]}}


def problems(
    entries: str, pods: dict[str, Document], *, succeeded: int = 1, failed: int = 0
) -> list[str]:
    job = {"status": {"succeeded": succeeded, "failed": failed}}
    return find_problems(1, job, pods, [line.split() for line in entries.split(", ")])


@pytest.mark.parametrize(
    ("entries", "pods", "status", "expected"),
    [
        ("begin a 0, end a 0", {"a": a_pod(0)}, {}, []),
        ("begin a 0, begin b 0, end b 0", {"a": a_pod(1, disrupted=True), "b": a_pod(0)}, {}, []),
        (
            "begin a 0, end a 3, begin b 0, end b 0",
            {"a": a_pod(3), "b": a_pod(0)},
            {"failed": 1},
            [],
        ),
        ("begin a 0, overlap a 0, end a 0", {"a": a_pod(0)}, {}, ["overlap"]),
        ("begin a 0, begin a 0, end a 0", {"a": a_pod(0)}, {}, ["doubled"]),
        ("begin a 0, end a 0", {"a": a_pod(0), "b": a_pod(3)}, {}, ["doubled"]),
        ("begin a 0, end a 0, begin b 0", {"a": a_pod(0)}, {}, ["lost"]),
        ("begin a 0, end a 0", {"a": a_pod(3)}, {}, ["lost", "counts"]),
        ("begin a 0, end a 0", {"a": a_pod(0)}, {"succeeded": 2}, ["counts"]),
        ("begin a 0, end a 0", {"a": a_pod(0)}, {"failed": 1}, ["counts"]),
    ],
)
def test_contradictions_between_ledger_and_api_are_found(
    entries: str, pods: dict[str, Document], status: dict[str, int], expected: list[str]
) -> None:
    found = problems(entries, pods, **status)
    assert [each.partition(":")[0] for each in found] == expected


@NEEDS_SLURM
@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_no_round_of_kills_has_a_problem() -> None:
    tally = play_rounds(7, seed=1, pods=12)
    assert tally.problems == []
    assert tally.rounds == 7
