"""Compaction of history: by age, by count, by bytes, for lack of space."""

import pytest

from onejob.store.history import History
from onejob.store.limits import Limits

ROOM = 10**12


def test_history_goes_when_it_is_old_enough() -> None:
    history = History(Limits(history_seconds=300))
    assert history.next_forgetting_at() is None
    history.record(10, dead=1, dead_bytes=1, now=0)
    history.record(20, dead=1, dead_bytes=1, now=100)
    assert history.next_forgetting_at() == 300
    assert history.forget(299.9, ROOM) == 0
    assert history.forget(300, ROOM) == 10
    assert history.next_forgetting_at() == 400
    assert history.forget(1_000, ROOM) == 20
    assert history.next_forgetting_at() is None


def test_changes_that_come_together_go_together_and_never_too_early() -> None:
    history = History(Limits(history_seconds=300))
    for revision in range(1, 10):
        history.record(revision, dead=1, dead_bytes=1, now=revision / 10)
    assert history.forget(300.5, ROOM) == 0
    assert history.forget(300.9, ROOM) == 9


@pytest.mark.parametrize(
    ("limits", "dead_bytes"),
    [(Limits(history_changes=320), 1), (Limits(history_bytes=32_000), 100)],
    ids=["count", "bytes"],
)
def test_history_over_its_limit_goes_from_the_oldest(limits: Limits, dead_bytes: int) -> None:
    history = History(limits)
    forgotten = 0
    for revision in range(1, 2_000):
        history.record(revision, dead=1, dead_bytes=dead_bytes, now=0)
        forgotten = max(forgotten, history.forget(0, ROOM))
        assert revision - forgotten <= 320
        assert forgotten == 0 or revision - forgotten >= 300
    assert forgotten > 0


def test_creations_alone_leave_no_history_to_bound() -> None:
    history = History(Limits(history_changes=10))
    for revision in range(1, 1_000):
        history.record(revision, dead=0, dead_bytes=0, now=0)
    assert history.forget(0, ROOM) == 0


def test_history_goes_when_there_is_no_room_for_it() -> None:
    history = History(Limits())
    for number in range(1, 4):
        history.record(number, dead=1, dead_bytes=100, now=number * 2.0)
    assert history.forget(6, room=300) == 0
    assert history.forget(6, room=299) == 1
    assert history.forget(6, room=0) == 3
