"""Document lookup for durable versions: from memory, or from disk for cold objects."""

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
        #: Cold versions of the last read, by revision: a read is usually followed by a write of the
        #: same object.
        self._last_cold: dict[int, Stored] = {}

    def find(self, key: Key) -> Stored | None:
        """Return the newest durable version, or None. Raises DamagedDocument."""
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
        """Read the cold objects among `keys` with one statement, ahead of calls to `find`."""
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
