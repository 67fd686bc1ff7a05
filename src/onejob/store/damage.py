"""Documents that are on disk but cannot be decoded: a flipped bit, or an edit by hand.

They are kept apart from the contents: lists and counts are without them, reading or writing one
raises DamagedDocument, and `LogStore.discard` deletes one. All other objects are served.
"""

import logging
from collections.abc import Callable
from typing import TypeAlias

from onejob.objects.meta import Key
from onejob.store.base import DamagedDocument
from onejob.store.contents import Contents

log = logging.getLogger(__name__)

#: Whether a document that comes from disk can be decoded by all its readers.
IsReadable: TypeAlias = Callable[[Key, bytes], bool]


def all_readable(_: Key, __: bytes) -> bool:
    return True


class Damage:
    def __init__(self, is_readable: IsReadable = all_readable) -> None:
        self.is_readable = is_readable
        #: The revision of each, by key.
        self.found: dict[Key, int] = {}

    def check_all(self, contents: Contents) -> None:
        """Remove from the contents what is in memory and cannot be read."""
        damaged = [
            (stored.key, stored.revision)
            for stored in contents.hot()
            if not self.is_readable(stored.key, stored.value)
        ]
        for key, revision in damaged:
            self.set_apart(key, revision, contents)

    def set_apart(self, key: Key, revision: int, contents: Contents) -> None:
        contents.remove(key)
        self.found[key] = revision
        log.error(
            "%s is damaged (revision %d): it is left out, and all else is served; restore a copy "
            "of the store, or delete the object",
            key,
            revision,
        )

    def require_whole(self, key: Key) -> None:
        revision = self.found.get(key)
        if revision is not None:
            raise DamagedDocument(key, revision)
