"""Decisions about Jobs that wait for other Jobs."""

from typing import Any

import pytest

from onejob.objects.job import Job
from onejob.planning.dependencies.annotation import (
    MAX_DEPENDENCIES,
    Dependency,
    InvalidAfter,
    parse_after,
)
from onejob.planning.dependencies.cycles import cycle_text, find_cycle
from onejob.planning.dependencies.decision import Decision, Fail, Release, Wait, decide
from onejob.planning.dependencies.standing import waits_for_dependencies
from onejob.planning.dependencies.state import State, observe, record_end, state_of
from onejob.planning.history import JobEnd
from onejob.planning.names import AFTER_ANNOTATION, AFTER_STATE_ANNOTATION
from tests.planning.build import a_job

OURS = "uid-of-waiting"


def a_dependency(name: str, condition: str = "", uid: str = "1", **metadata: Any) -> Job:
    conditions = [{"type": condition, "status": "True", "reason": "Why"}] if condition else []
    return a_job(metadata={"name": name, "uid": uid, **metadata}, status={"conditions": conditions})


def decided(after: str, *jobs: Job, state: State | None = None) -> Decision:
    edges = parse_after(after)
    current = {job.metadata.name: job for job in jobs}
    state = state or State(of=OURS)
    for edge in edges:
        state = observe(state, edge.name, current.get(edge.name))
    return decide(edges, state, current.get)


def test_parse_after_reads_names_and_conditions() -> None:
    assert parse_after("extract, clean:Finished ,alarm:Failed") == (
        Dependency("extract", "Complete"),
        Dependency("clean", "Finished"),
        Dependency("alarm", "Failed"),
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "empty name"),
        ("a,,b", "empty name"),
        ("a:", "unknown condition"),
        ("a:Done", "a:Done: unknown condition; expected Complete, Failed, Finished"),
        ("Bad_Name", "no name of a Job"),
        ("me", "names the Job itself"),
        ("a,b,a:Failed", "names a twice"),
        (",".join(f"j{n}" for n in range(MAX_DEPENDENCIES + 1)), "names 101 Jobs"),
    ],
)
def test_parse_after_rejects_invalid_text(text: str, problem: str) -> None:
    with pytest.raises(InvalidAfter, match=problem):
        parse_after(text, "me")


@pytest.mark.parametrize(
    ("awaited", "ended", "outcome"),
    [
        ("Complete", "Complete", Release),
        ("Complete", "Failed", Fail),
        ("Failed", "Failed", Release),
        ("Failed", "Complete", Fail),
        ("Finished", "Complete", Release),
        ("Finished", "Failed", Release),
        ("Complete", "", Wait),
        ("Failed", "", Wait),
        ("Finished", "", Wait),
    ],
)
def test_decide_compares_end_with_awaited_condition(
    awaited: str, ended: str, outcome: type
) -> None:
    assert isinstance(decided(f"a:{awaited}", a_dependency("a", ended)), outcome)


def test_decide_names_culprit_and_fails_before_waiting() -> None:
    decision = decided("b,a", a_dependency("a", "Failed"))
    assert decision == Fail("DependencyFailed", "job a failed (Why), but had to be Complete")


def test_decide_waits_for_absent_dependency() -> None:
    assert decided("a") == Wait(("job a does not exist yet",))


def test_decide_fails_when_pinned_dependency_is_gone() -> None:
    state = observe(State(of=OURS), "a", a_dependency("a"))
    decision = decided("a", state=state)
    assert decision == Fail("DependencyFailed", "job a was deleted before it was seen to finish")


def test_decide_ignores_later_job_of_pinned_name() -> None:
    state = observe(State(of=OURS), "a", a_dependency("a", uid="1"))
    assert isinstance(decided("a", a_dependency("a", "Complete", uid="2"), state=state), Fail)


def test_observe_keeps_recorded_end() -> None:
    state = observe(State(of=OURS), "a", a_dependency("a", "Complete"))
    assert observe(state, "a", a_dependency("a", "Failed")) is state
    assert isinstance(decided("a", state=state), Release)


def test_observe_pins_no_unfinished_job_in_deletion() -> None:
    dying = a_dependency("a", deletionTimestamp="2026-01-01T00:00:00Z")
    assert observe(State(of=OURS), "a", dying) == State(of=OURS)


def test_record_end_counts_like_observed_end() -> None:
    state = observe(State(of=OURS), "a", a_dependency("a"))
    state = record_end(state, "a", JobEnd(name="a", condition="Complete"))
    assert isinstance(decided("a", state=state), Release)


def test_wait_text_is_bounded() -> None:
    decision = decided(",".join(f"j{n}" for n in range(100)))
    assert isinstance(decision, Wait)
    assert decision.text.endswith("and 95 more Jobs")
    assert len(decision.text) < 300


def waiting(state: State | None = None, **fields: Any) -> Job:
    annotations = {AFTER_ANNOTATION: "a"}
    if state is not None:
        annotations[AFTER_STATE_ANNOTATION] = state.encode()
    return a_job(metadata={"uid": OURS, "annotations": annotations}, **fields)


def test_waits_until_released() -> None:
    assert waits_for_dependencies(waiting())
    assert waits_for_dependencies(waiting(State(of=OURS)))
    assert not waits_for_dependencies(waiting(State(of=OURS, released=True)))


def test_waits_ignores_state_copied_from_another_job() -> None:
    assert waits_for_dependencies(waiting(State(of="another", released=True)))


def test_waits_ignores_job_that_had_started() -> None:
    started = {"startTime": "2026-01-01T00:00:00Z"}
    assert not waits_for_dependencies(waiting(status=started))


def test_state_of_ignores_damaged_annotation() -> None:
    job = a_job(metadata={"uid": OURS, "annotations": {AFTER_STATE_ANNOTATION: "{"}})
    assert state_of(job) == State(of=OURS)


@pytest.mark.parametrize(
    ("edges", "cycle"),
    [
        ({"a": ["b"], "b": ["a"]}, "a → b → a"),
        ({"a": ["x", "b"], "b": ["c"], "c": ["a"], "x": []}, "a → b → c → a"),
        ({"a": ["b"], "b": ["c"], "c": ["b"]}, ""),
        ({"a": ["b", "c"], "b": ["d"], "c": ["d"]}, ""),
        ({}, ""),
    ],
)
def test_find_cycle_returns_cycle_through_job(edges: dict[str, list[str]], cycle: str) -> None:
    assert cycle_text(find_cycle("a", lambda name: edges.get(name, []))) == cycle


def test_find_cycle_of_long_chain_is_shortened_in_text() -> None:
    chain = {f"j{n}": [f"j{(n + 1) % 5000}"] for n in range(5000)}
    found = find_cycle("j0", lambda name: chain[name])
    assert len(found) == 5001
    assert cycle_text(found).startswith("j0 → j1 → ")
    assert len(cycle_text(found)) < 200
