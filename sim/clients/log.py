"""Log of all changes that the server stored, by object."""

import asyncio
from collections import defaultdict
from collections.abc import Callable  # noqa: TC003 - for an attribute
from contextlib import suppress
from dataclasses import dataclass

import msgspec

from onejob.objects.meta import Key
from onejob.store.base import Change, StoreClosed
from onejob.store.log import LogStore


@dataclass(frozen=True)
class Entry:
    """One stored change of an object."""

    at: float
    revision: int
    uid: str
    document: bytes
    gone: bool
    quiet: bool


class ServerLog:
    """Log of the stored changes of some resources, fed by watches of the store."""

    def __init__(self) -> None:
        self.entries: dict[Key, list[Entry]] = defaultdict(list)
        #: Revision up to which the log of a resource is complete.
        self.seen: dict[str, int] = {}
        self.on_entry: list[Callable[[Key, Entry], None]] = []

    def follow(self, store: LogStore, *resources: str) -> list[asyncio.Task[None]]:
        """Start logging the changes of some resources, from the last logged revision on."""
        return [asyncio.create_task(self._follow(store, resource)) for resource in resources]

    def last(self, key: Key, up_to: int) -> Entry | None:
        """Return the last change of an object at or before a revision, or None."""
        found = [entry for entry in self.entries.get(key, ()) if entry.revision <= up_to]
        return found[-1] if found else None

    def carrying(self, marker: str) -> dict[str, Entry]:
        """Return the objects that ever contained a text: the first version that did, by UID."""
        text = marker.encode()
        found: dict[str, Entry] = {}
        for entries in self.entries.values():
            for entry in entries:
                if not entry.gone and text in entry.document:
                    found.setdefault(entry.uid, entry)
        return found

    async def _follow(self, store: LogStore, resource: str) -> None:
        after = self.seen.setdefault(resource, 0)
        with suppress(StoreClosed):
            async for batch in store.watch(resource, after=after):
                for change in batch:
                    self._note(change)

    def _note(self, change: Change) -> None:
        document = change.value if change.value is not None else change.previous
        assert document is not None, "nothing is damaged here"
        uid = msgspec.json.decode(document)["metadata"]["uid"]
        now = asyncio.get_running_loop().time()
        entry = Entry(now, change.revision, uid, document, change.value is None, change.quiet)
        self.entries[change.key].append(entry)
        self.seen[change.key.resource] = change.revision
        for call in self.on_entry:
            call(change.key, entry)
