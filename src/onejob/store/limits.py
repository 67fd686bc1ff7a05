"""How much the store keeps, where; one value at the edge, defaults for one machine."""

from msgspec import Struct

MIB = 1024 * 1024


class Limits(Struct, frozen=True):
    #: History on disk: what watches and paged lists can go back to.
    history_seconds: float = 300.0
    history_changes: int = 200_000
    history_bytes: int = 256 * MIB
    #: The newest changes, kept in memory as well.
    recent_changes: int = 8_192
    recent_bytes: int = 16 * MIB
    #: What may wait for one watcher before it is dropped.
    watch_changes: int = 16_384
    watch_bytes: int = 32 * MIB
    #: What may wait for all of them together before the slowest is dropped.
    all_watches_bytes: int = 64 * MIB
    #: One commit; bounds the time for which the loop publishes its changes.
    commit_changes: int = 2_048
    commit_bytes: int = 8 * MIB
    #: A checkpoint is due when about this much was written since the last one.
    checkpoint_bytes: int = 16 * MIB
    #: Free pages are given back to the file system when they are more than this many, and more
    #: than a third of the file; below, they are soon used again.
    spare_pages: int = 1_024
