"""Heap of deadlines that may be moved and dropped."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from onejob.controllers.due_keys import Deadlines

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def after(seconds: int) -> datetime:
    return NOON + timedelta(seconds=seconds)


def test_due_keys_are_taken_in_order_and_once() -> None:
    deadlines = Deadlines[str]()
    for key, seconds in (("c", 3), ("a", 1), ("b", 2), ("later", 10)):
        deadlines.set(key, after(seconds))
    assert deadlines.next_due == after(1)
    assert deadlines.take_due(after(3), limit=2) == ["a", "b"]
    assert deadlines.take_due(after(3), limit=2) == ["c"]
    assert deadlines.take_due(after(3), limit=2) == []
    assert deadlines.next_due == after(10)


def test_all_that_are_later_can_be_brought_forward() -> None:
    deadlines = Deadlines[str]()
    for key, seconds in (("soon", 1), ("late", 100), ("later", 200)):
        deadlines.set(key, after(seconds))
    deadlines.bring_forward(after(10))
    assert deadlines.take_due(after(9), limit=9) == ["soon"]
    assert deadlines.take_due(after(10), limit=9) == ["late", "later"]
    assert len(deadlines) == 0


def test_a_deadline_can_be_moved_both_ways_and_dropped() -> None:
    deadlines = Deadlines[str]()
    deadlines.set("sooner", after(10))
    deadlines.set("sooner", after(1))
    deadlines.set("later", after(1))
    deadlines.set("later", after(10))
    deadlines.set("dropped", after(1))
    deadlines.drop("dropped")
    assert deadlines.take_due(after(5), limit=10) == ["sooner"]
    assert deadlines.take_due(after(20), limit=10) == ["later"]
    assert deadlines.next_due is None


def test_deadlines_that_move_for_ever_do_not_pile_up() -> None:
    deadlines = Deadlines[str]()
    for seconds in range(100_000):
        deadlines.set("restless", after(seconds))
    assert len(deadlines._heap) < 5000
    assert deadlines.take_due(after(100_000), limit=10) == ["restless"]


@given(
    st.lists(st.tuples(st.integers(0, 5), st.one_of(st.none(), st.integers(0, 9))), max_size=60),
    st.integers(0, 9),
)
def test_it_agrees_with_a_plain_dictionary(changes: list[tuple[int, int | None]], now: int) -> None:
    deadlines, plain = Deadlines[int](), dict[int, datetime]()
    for key, seconds in changes:
        if seconds is None:
            deadlines.drop(key)
            plain.pop(key, None)
        else:
            deadlines.set(key, after(seconds))
            plain[key] = after(seconds)
    assert len(deadlines) == len(plain)
    assert deadlines.next_due == min(plain.values(), default=None)
    taken = deadlines.take_due(after(now), limit=100)
    assert sorted(taken) == sorted(key for key, due in plain.items() if due <= after(now))
    assert [plain[key] for key in taken] == sorted(plain[key] for key in taken)
