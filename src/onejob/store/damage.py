"""Documents that are on disk but make no sense: a flipped bit, or the hand of a person.

They are kept apart from the contents: lists and counts are without them, reading or writing one
raises DamagedDocument, and `LogStore.discard` takes one away. The rest is served as ever.
"""

import logging
from collections.abc import Callable
from typing import TypeAlias

from onejob.objects.meta import Key
from onejob.store.base import DamagedDocument
from onejob.store.contents import Contents

log = logging.getLogger(__name__)

#: Whether a document that comes from disk can be read by those who will use it.
IsReadable: TypeAlias = Callable[[Key, bytes], bool]


def anything(_: Key, __: bytes) -> bool:
    return True


class Damage:
    def __init__(self, is_readable: IsReadable = anything) -> None:
        self.is_readable = is_readable
        #: The revision of each, by key.
        self.found: dict[Key, int] = {}

    def check_all(self, contents: Contents) -> None:
        """Take out of the contents what is in memory and cannot be read."""
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
