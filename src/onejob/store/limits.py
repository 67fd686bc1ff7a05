"""Retention and buffer limits of the store; the defaults fit one machine.

Passed in once, where the store is opened.
"""

from msgspec import Struct

MIB = 1024 * 1024


class Limits(Struct, frozen=True):
    """Retention, queue and commit limits of one store. Sizes are in bytes; immutable."""

    #: History on disk: the range that watches and paged lists can go back to. Retained until any of
    #: the three limits is exceeded.
    history_seconds: float = 300.0
    history_changes: int = 200_000
    history_bytes: int = 256 * MIB
    #: The newest changes, which are kept in memory as well.
    recent_changes: int = 8_192
    recent_bytes: int = 16 * MIB
    #: Queue limits of one watcher; beyond them it is dropped.
    watch_changes: int = 16_384
    watch_bytes: int = 32 * MIB
    #: Queue limit of all watchers together; beyond it the slowest is dropped.
    all_watches_bytes: int = 64 * MIB
    #: Size of one commit; bounds the time for which publishing its changes occupies the event loop.
    commit_changes: int = 2_048
    commit_bytes: int = 8 * MIB
    #: Approximate number of bytes written between two checkpoints.
    checkpoint_bytes: int = 16 * MIB
    #: Free pages are returned to the file system if there are more than this many, and more than a
    #: third of the file; fewer are soon reused.
    spare_pages: int = 1_024
