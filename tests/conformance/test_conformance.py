"""Upstream's recorded cases, and corrupted copies that the comparison must reject."""

from collections import Counter

import pytest

from tests.conformance.loader import (
    Runner,
    file_names,
    folder,
    load,
    runner_for,
)
from tests.conformance.verdict import Failed, Passed, Skipped

FILES = file_names()

pytestmark = pytest.mark.skipif(
    folder() is None,
    reason="no conformance folder beside the checkout and ONEJOB_CONFORMANCE is not set",
)


def find_runner(name: str) -> Runner:
    runner = runner_for(name)
    assert runner is not None, f"no tests/conformance/run_{name}.py"
    return runner


@pytest.mark.parametrize("name", FILES)
def test_every_recorded_case_of_a_file_holds(name: str) -> None:
    runner = find_runner(name)
    failures = []
    for case in load(name):
        verdict = runner.judge(case)
        if isinstance(verdict, Failed):
            failures.append(f"{case['name']}: {verdict.why[:400]}")
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("name", FILES)
def test_a_corrupted_expectation_is_noticed(name: str) -> None:
    runner = find_runner(name)
    tried: Counter[str] = Counter()
    unnoticed = []
    for case in load(name):
        if not isinstance(runner.judge(case), Passed):
            continue
        for label, corrupted in runner.corruptions(case):
            tried[label] += 1
            if not isinstance(runner.judge(corrupted), Failed):
                unnoticed.append(f"{label} of {case['name']}")
    assert tried, f"run_{name}.corruptions yields nothing"
    assert not unnoticed, "\n".join(unnoticed)


def test_skipped_cases_are_few_and_have_reasons() -> None:
    verdicts = [find_runner(name).judge(case) for name in FILES for case in load(name)]
    skipped = [verdict for verdict in verdicts if isinstance(verdict, Skipped)]
    assert all(verdict.reason for verdict in skipped)
    assert len(skipped) < 0.03 * len(verdicts)
