"""Order of starts in the queue, on values alone."""

from random import Random

import pytest

from onejob.planning.queue.limits import BadLimits, Limits, parse_limits, read_limits, scope_text
from onejob.planning.queue.order import JobQueue, Rank, rank


def test_limits_are_read_as_options_and_as_text() -> None:
    wanted = Limits({"*": 5, "namespace/team-a": 3, "gpu": 2})
    assert parse_limits(["*=5", "namespace/team-a=3", "gpu=2"]) == wanted
    assert read_limits("*=5, namespace/team-a = 3\n\ngpu=2\n") == wanted
    assert read_limits(str(wanted)) == wanted
    assert read_limits("") == Limits()
    assert list(map(scope_text, wanted.by_scope)) == ["all Jobs", "namespace team-a", "queue gpu"]


@pytest.mark.parametrize(
    "item", ["gpu", "gpu=", "gpu=-1", "gpu=two", "=5", "a/b=1", "namespace/=1", "-x=1", "gpu=1.5"]
)
def test_invalid_limit_error_names_it(item: str) -> None:
    with pytest.raises(BadLimits, match="QUEUE=N, namespace/NAME=N"):
        parse_limits([item])


def test_queue_orders_by_priority_then_arrival() -> None:
    line = JobQueue(Limits({"*": 1}))
    for uid, priority, entered in (("a", 0, 1), ("b", 5, 3), ("c", 5, 2), ("d", 9, 4)):
        line.put_waiting(uid, rank(priority, entered), ("*",))
    order: list[str] = []
    while started := line.start():
        order += started
        line.drop(started[0])
    assert order == ["d", "c", "b", "a"]


def test_a_full_queue_does_not_keep_others_waiting() -> None:
    line = JobQueue(Limits({"*": 3, "gpu": 1}))
    line.put_running("r", ("*", "gpu"))
    line.put_waiting("g1", rank(9, 1), ("*", "gpu"))
    line.put_waiting("g2", rank(9, 2), ("*", "gpu"))
    line.put_waiting("c1", rank(0, 3), ("*",))
    line.put_waiting("c2", rank(0, 4), ("*",))
    assert line.start() == ["c1", "c2"]
    assert line.full_scope("g1") == "*", "all limits are full by now"
    line.drop("c1")
    assert line.full_scope("g1") == "gpu"
    assert line.start() == []
    line.drop("r")
    assert line.start() == ["g1"]
    assert (line.taken("*"), line.taken("gpu")) == (2, 1)


def test_a_job_that_changes_its_rank_or_its_scopes_keeps_one_place() -> None:
    line = JobQueue(Limits({"a": 1, "b": 1}))
    line.put_waiting("x", rank(0, 1), ("a",))
    line.put_waiting("y", rank(0, 2), ("a",))
    line.put_waiting("x", rank(0, 3), ("a",))
    line.put_waiting("x", rank(-1, 1), ("a",))
    assert line.start() == ["y"]
    line.put_waiting("x", rank(-1, 1), ("b",))
    assert line.start() == ["x"]
    assert line.start() == []


def test_put_running_frees_the_slots_of_the_former_scopes() -> None:
    line = JobQueue(Limits({"a": 1, "b": 1, "c": 1}))
    line.put_running("x", ("a", "b"))
    line.put_running("x", ("b", "c"))
    assert [line.taken(scope) for scope in "abc"] == [0, 1, 1]
    line.put_running("x", ("b", "c"))
    assert [line.taken(scope) for scope in "abc"] == [0, 1, 1]
    line.drop("x")
    assert [line.taken(scope) for scope in "abc"] == [0, 0, 0]


def test_put_running_removes_a_waiting_job_from_the_queue() -> None:
    line = JobQueue(Limits({"a": 1}))
    line.put_waiting("x", rank(0, 1), ("a",))
    line.put_running("x", ("a",))
    assert (line.runs("x"), line.waits("x"), line.taken("a")) == (True, False, 1)
    line.drop("x")
    assert line.start() == []
    assert line.taken("a") == 0


def test_put_waiting_frees_the_slots_of_a_job_that_ran() -> None:
    line = JobQueue(Limits({"a": 1}))
    line.put_running("x", ("a",))
    line.put_waiting("x", rank(0, 1), ("a",))
    assert (line.runs("x"), line.taken("a")) == (False, 0)
    assert line.start() == ["x"]


def test_jobs_without_limit_do_not_wait() -> None:
    line = JobQueue(Limits())
    line.put_waiting("x", rank(0, 1), ())
    assert line.start() == ["x"]


@pytest.mark.parametrize("seed", range(20))
def test_no_limit_is_exceeded_and_no_room_is_left_unused(seed: int) -> None:
    """Compared with the obvious rule.

    Go through all waiting Jobs in order, start each that fits.
    """
    rng = Random(seed)
    limits = Limits({"*": rng.randint(0, 6), "namespace/n": rng.randint(0, 4), "q": 2})
    every = tuple(limits.by_scope)
    line = JobQueue(limits)
    running: dict[str, tuple[str, ...]] = {}
    waiting: dict[str, tuple[Rank, tuple[str, ...]]] = {}
    for number in range(300):
        uid = f"j{number}"
        if running and rng.random() < 0.4:
            done = rng.choice(sorted(running))
            del running[done]
            line.drop(done)
        else:
            scopes = ("*", *(scope for scope in every[1:] if rng.random() < 0.4))
            waiting[uid] = rank(rng.randint(0, 2), number), scopes
            line.put_waiting(uid, *waiting[uid])
        expected = []
        for candidate in sorted(waiting, key=lambda uid: waiting[uid][0]):
            fits = all(
                sum(scope in scopes for scopes in running.values()) < limits.by_scope[scope]
                for scope in waiting[candidate][1]
            )
            if fits:
                running[candidate] = waiting[candidate][1]
                expected.append(candidate)
        for candidate in expected:
            del waiting[candidate]
        assert line.start() == expected
        for scope, limit in limits.by_scope.items():
            assert line.taken(scope) <= limit
