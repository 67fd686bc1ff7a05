"""Quarantine of damaged documents.

A document is damaged if it changed on disk or cannot be decoded: a bit flip, or a manual edit.
Damaged objects are removed from the contents: lists and counts exclude them, reading or writing one
raises DamagedDocument, and `LogStore.discard` deletes one. All other objects are served.
"""

import logging
from collections.abc import Callable
from sys import maxsize
from typing import TypeAlias

from onejob.objects.meta import Key
from onejob.store.base import DamagedDocument
from onejob.store.checksums import DAMAGED
from onejob.store.contents import Contents

log = logging.getLogger(__name__)

#: Return whether all readers can decode a document that was read from disk.
IsReadable: TypeAlias = Callable[[Key, bytes], bool]


def all_readable(_: Key, __: bytes) -> bool:
    """Return True: no document is checked."""
    return True


class Damage:
    """Damaged documents found so far, by key and revision."""

    def __init__(self, is_readable: IsReadable = all_readable) -> None:
        self._is_readable = is_readable
        #: Later revisions were written by this process, from documents that it could decode, and
        #: their checksums prove them unchanged. Earlier ones may stem from an older version or a
        #: manual edit.
        self._found_upto = maxsize
        #: Key -> revision of the damaged document.
        self.found: dict[Key, int] = {}
        #: Called when a damaged document is found after start-up.
        self.on_found: Callable[[], None] | None = None

    def is_whole(self, key: Key, revision: int, value: bytes) -> bool:
        if value is DAMAGED:
            return False
        return revision > self._found_upto or self._is_readable(key, value)

    def check_all(self, contents: Contents, newest: int) -> None:
        """Quarantine the undecodable documents that are held in memory.

        `newest` is the last revision on disk when the store is opened.
        """
        self._found_upto = newest
        damaged = [
            (stored.key, stored.revision)
            for stored in contents.hot()
            if not self.is_whole(stored.key, stored.revision, stored.value)
        ]
        for key, revision in damaged:
            self.set_apart(key, revision, contents)

    def set_apart(self, key: Key, revision: int, contents: Contents) -> None:
        """Remove a damaged object from the contents and log its key."""
        contents.remove(key)
        self.found[key] = revision
        log.error(
            "%s is damaged (revision %d) and is not served; all other objects are; restore a "
            "backup, or delete the object; onejob doctor checks all objects",
            key,
            revision,
        )
        if self.on_found is not None:
            self.on_found()

    def require_whole(self, key: Key) -> None:
        revision = self.found.get(key)
        if revision is not None:
            raise DamagedDocument(key, revision)
