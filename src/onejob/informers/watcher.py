"""List-watch state machine: the next step depends only on the last result.

    NeedsList ──listed──► Watching(revision) ──events──► Watching(newer revision)
        ▲                        │  │
        └──────── gone (410) ────┘  └── closed, failed ──► Watching(same revision), later

The driver in `informer` performs the request that belongs to a state and passes the result to
`step`, so 410s, disconnects and bookmarks are rows of a test table rather than sleeps.
"""

from collections.abc import Sequence
from typing import TypeAlias

from msgspec import Struct

from onejob.client.base import WatchEvent

_FIRST_DELAY = 0.05
_MAX_DELAY_SECONDS = 30.0


class NeedsList(Struct, frozen=True):
    failures: int = 0


class Watching(Struct, frozen=True):
    revision: int
    failures: int = 0


State: TypeAlias = NeedsList | Watching


class Listed(Struct, frozen=True):
    revision: int


class Events(Struct, frozen=True):
    batch: Sequence[WatchEvent]


class Closed(Struct, frozen=True):
    """The server ended the watch, as it may at any time."""


class Gone(Struct, frozen=True):
    """The server no longer keeps the history after this revision (410)."""


class Failed(Struct, frozen=True):
    """No response, or an error that does not concern the revision."""


WatchResult: TypeAlias = Listed | Events | Closed | Gone | Failed


def step(state: State, result: WatchResult) -> State:
    """Return the state after `result`. Events are applied to the cache by the driver."""
    match result:
        case Listed(revision=revision):
            return Watching(revision)
        case Events(batch=batch):
            assert isinstance(state, Watching), "events can only come from a watch"
            return Watching(batch[-1].revision if batch else state.revision)
        case Closed():
            return state
        case Gone():
            return NeedsList(failures=state.failures)
        case Failed():
            if isinstance(state, Watching):
                return Watching(state.revision, state.failures + 1)
            return NeedsList(state.failures + 1)


def delay_before(state: State) -> float:
    """Return the seconds to wait before the state's next attempt.

    Exponential back-off; 0 without failures.
    """
    if not state.failures:
        return 0.0
    return float(min(_FIRST_DELAY * 2 ** (state.failures - 1), _MAX_DELAY_SECONDS))
