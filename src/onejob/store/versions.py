"""Finds the whole document of a durable version: in memory, or on disk if it is cold."""

from collections.abc import Collection, Sequence

from onejob.objects.meta import Key
from onejob.store.base import DamagedDocument, Stored
from onejob.store.contents import Contents
from onejob.store.damage import Damage
from onejob.store.database import Reader


class Versions:
    def __init__(self, contents: Contents, reader: Reader, damage: Damage) -> None:
        self._contents = contents
        self._reader = reader
        self._damage = damage
        #: The cold versions read last, by revision: who reads one usually writes it next.
        self._last_cold: dict[int, Stored] = {}

    def find(self, key: Key) -> Stored | None:
        """Raises DamagedDocument."""
        held = self._contents.find(key)
        if type(held) is Stored:
            return held
        if not isinstance(held, int):
            if self._damage.found:
                self._damage.require_whole(key)
            return None
        stored = self._last_cold.get(held)
        if stored is None:
            value = self._reader.value(key, held)
            if not self._damage.is_whole(key, held, value):
                self._damage.set_apart(key, held, self._contents)
                raise DamagedDocument(key, held)
            stored = Stored(key, held, value)
            self._last_cold = {held: stored}
        return stored

    def load(self, keys: Sequence[Key], *, without: Collection[Key]) -> None:
        """Read those that are cold with one statement, for the `find` that follows."""
        cold = {
            held: key
            for key in keys
            if key not in without and isinstance(held := self._contents.find(key), int)
        }
        if len(cold) > 1:
            values = self._reader.values(cold)
            is_whole = self._damage.is_whole
            self._last_cold = {
                held: Stored(key, held, values[held])
                for held, key in cold.items()
                if is_whole(key, held, values[held])
            }
