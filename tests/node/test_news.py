"""Batching of the supervisor's reports, with simulated time."""

from collections.abc import Callable
from typing import Any

from onejob.node.supervisor.event_batching import (
    BATCH_DELAY_SECONDS,
    BRIEF_SECONDS,
    MIN_BATCH,
    EventBatcher,
)
from onejob.node.supervisor.journal import Attempt, Claim, Outcome

MOMENT = BATCH_DELAY_SECONDS / 4


class Scene:
    """Reports with a settable clock, timers that are independent of it, and the messages sent."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._passed = 0.0
        self.sent: list[list[tuple[str, str]]] = []
        self._timers: list[tuple[float, Callable[[], None]]] = []
        self.news = EventBatcher(self._send, self._after, lambda: self.now)

        #: Whether the journal is on disk: if not, no report may be sent.
        self.recorded = True

    def _send(self, events: list[list[Any]]) -> bool:
        if self.recorded:
            self.sent.append([(kind, uid) for kind, uid, *_ in events])
        return self.recorded

    def _after(self, seconds: float, action: Callable[[], None]) -> None:
        self._timers.append((self._passed + seconds, action))

    def begin(self, uid: str) -> Attempt:
        attempt = Attempt(Claim(uid, "c", 0), 1)
        attempt.started_at = self.now
        self.news.began(attempt)
        return attempt

    def end(self, attempt: Attempt) -> None:
        attempt.outcome = Outcome("exited", self.now)
        self.news.add(attempt)
        self.news.tell()

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self._passed += seconds
        due = [timer for timer in self._timers if timer[0] <= self._passed]
        self._timers = [timer for timer in self._timers if timer[0] > self._passed]
        for _, action in due:
            action()
        self.news.tell()


def test_end_is_reported_at_once_without_recent_starts() -> None:
    scene = Scene()
    older = scene.begin("older")
    scene.wait(2 * BATCH_DELAY_SECONDS)
    scene.end(scene.begin("a"))
    scene.end(older)
    assert scene.sent == [[("exited", "a")], [("exited", "older")]]


def test_ends_of_containers_started_together_are_batched() -> None:
    scene = Scene()
    a, b, c = scene.begin("a"), scene.begin("b"), scene.begin("c")
    scene.wait(MOMENT)
    scene.end(c)
    scene.end(a)
    assert scene.sent == []
    scene.wait(MOMENT)
    scene.end(b)
    assert scene.sent == [[("exited", "c"), ("exited", "a"), ("exited", "b")]]


def test_an_end_waits_no_longer_than_a_moment_for_others() -> None:
    scene = Scene()
    a = scene.begin("a")
    scene.begin("stays")
    scene.end(a)
    scene.wait(BATCH_DELAY_SECONDS / 2)
    assert scene.sent == []
    scene.wait(BATCH_DELAY_SECONDS / 2)
    assert scene.sent == [[("exited", "a")]]


def test_continuous_starts_do_not_delay_other_events() -> None:
    scene = Scene()
    scene.begin("first")
    scene.end(scene.begin("a"))
    for number in range(8):
        scene.begin(str(number))
        scene.wait(MOMENT)
    assert scene.sent == [[("exited", "a")]]


def test_short_attempt_is_reported_once_and_long_one_as_started() -> None:
    scene = Scene()
    brief = scene.begin("brief")
    scene.begin("lasting")
    scene.wait(MOMENT)
    scene.end(brief)
    scene.wait(BATCH_DELAY_SECONDS)
    scene.wait(BRIEF_SECONDS)
    assert scene.sent == [[("exited", "brief")], [("started", "lasting")]]


def test_news_come_also_when_the_clock_was_set_back() -> None:
    scene = Scene()
    scene.begin("stays")
    a = scene.begin("a")
    scene.now -= 100
    scene.end(a)
    assert scene.sent == [[("exited", "a")]]
    scene.wait(BRIEF_SECONDS)
    assert scene.sent[1:] == [[("started", "stays")]]


def test_event_is_sent_after_its_record_is_durable() -> None:
    scene = Scene()
    scene.recorded = False
    scene.end(scene.begin("a"))
    scene.wait(1.0)
    scene.end(scene.begin("b"))
    scene.wait(1.0)
    assert scene.sent == []
    scene.recorded = True
    scene.news.tell()
    assert scene.sent == [[("exited", "a"), ("exited", "b")]]


def test_partial_batch_is_sent_if_large_enough() -> None:
    scene = Scene()
    begun = [scene.begin(str(number)) for number in range(2 * MIN_BATCH)]
    for attempt in begun[: MIN_BATCH - 1]:
        scene.end(attempt)
    scene.news.flush_partial(others=MIN_BATCH + 1)
    assert scene.sent == []
    scene.end(begun[MIN_BATCH - 1])
    scene.news.flush_partial(others=MIN_BATCH - 1)
    assert scene.sent == []
    scene.news.flush_partial(others=MIN_BATCH)
    assert scene.sent == [[("exited", str(number)) for number in range(MIN_BATCH)]]
    scene.wait(BATCH_DELAY_SECONDS)
    assert len(scene.sent) == 1, "nothing is told twice"


def test_unrecorded_events_are_not_in_partial_batch() -> None:
    scene = Scene()
    scene.recorded = False
    for number in range(MIN_BATCH):
        scene.end(scene.begin(str(number)))
    scene.news.flush_partial(others=MIN_BATCH)
    scene.recorded = True
    scene.wait(BATCH_DELAY_SECONDS)
    assert scene.sent == [[("exited", str(number)) for number in range(MIN_BATCH)]]
