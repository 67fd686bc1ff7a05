"""List, then watch, as a state machine: the next step depends only on the last result.

    NeedsList ──listed──► Watching(revision) ──events──► Watching(newer revision)
        ▲                        │  │
        └──────── gone (410) ────┘  └── closed, failed ──► Watching(same revision), later

The driver in `informer` performs the step a state asks for and feeds back what happened, so
410s, disconnects and bookmarks are rows of a test table rather than sleeps.
"""

from collections.abc import Sequence
from typing import TypeAlias

from msgspec import Struct

from onejob.client.base import WatchEvent

_FIRST_DELAY = 0.05
_LONGEST_DELAY = 30.0


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
    """The revision to continue from is no longer kept."""


class Failed(Struct, frozen=True):
    """No answer, or an error that says nothing about the revision."""


WatchResult: TypeAlias = Listed | Events | Closed | Gone | Failed


def step(state: State, result: WatchResult) -> State:
    """The state after something happened. Events are applied to the cache by the driver."""
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
    """How long to wait before the state's next attempt; 0 unless attempts failed."""
    if not state.failures:
        return 0.0
    return float(min(_FIRST_DELAY * 2 ** (state.failures - 1), _LONGEST_DELAY))
