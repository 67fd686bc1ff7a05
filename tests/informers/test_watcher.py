"""The list-then-watch state machine, one row per event."""

import pytest

from onejob.client.base import WatchEvent
from onejob.informers.watcher import (
    Closed,
    Events,
    Failed,
    Gone,
    Listed,
    NeedsList,
    State,
    Watching,
    WatchResult,
    delay_before,
    step,
)
from onejob.objects.meta import Key

KEY = Key("pods", "default", "a")


def events(*revisions: int) -> Events:
    return Events([WatchEvent("MODIFIED", KEY, revision, b"{}") for revision in revisions])


BOOKMARK = Events([WatchEvent("BOOKMARK", Key("", "", ""), 90, b"{}")])


@pytest.mark.parametrize(
    ("state", "result", "expected"),
    [
        (NeedsList(), Listed(7), Watching(7)),
        (NeedsList(failures=3), Listed(7), Watching(7)),
        (NeedsList(), Failed(), NeedsList(failures=1)),
        (Watching(7), events(8, 12), Watching(12)),
        (Watching(7, failures=2), events(8), Watching(8)),
        (Watching(7), Events([]), Watching(7)),
        (Watching(7), BOOKMARK, Watching(90)),
        (Watching(7), Closed(), Watching(7)),
        (Watching(7), Gone(), NeedsList()),
        (Watching(7), Failed(), Watching(7, failures=1)),
        (Watching(7, failures=1), Failed(), Watching(7, failures=2)),
    ],
)
def test_each_result_leads_to_one_state(state: State, result: WatchResult, expected: State) -> None:
    assert step(state, result) == expected


def test_only_failures_delay_the_next_attempt_and_the_delay_is_bounded() -> None:
    assert delay_before(NeedsList()) == 0
    assert delay_before(Watching(3)) == 0
    delays = [delay_before(Watching(3, failures=n)) for n in range(1, 20)]
    assert delays[:3] == [0.05, 0.1, 0.2]
    assert max(delays) == 30.0
