"""Registry of the kinds that one server serves: built-in ones, and those added at run time.

Generic code (routing, discovery, OpenAPI, garbage collection, ...) uses the registry of its server
and subscribes to its changes.

Concurrency:
    The tables are changed in place, so a lookup costs no more than in a constant. The tuples are
    replaced, so an iteration sees one consistent state.
"""

from collections.abc import Callable, Iterable
from typing import TypeAlias, TypeVar

from msgspec import Struct

from onejob.wire.errors import NotFound
from onejob.wire.kinds import KINDS, MEASURED_KINDS, Kind


class KindsChanged(Struct, frozen=True):
    """Change of the registry. A modified kind is both removed and added."""

    added: tuple[Kind, ...]
    removed: tuple[Kind, ...]


Listener: TypeAlias = Callable[[KindsChanged], None]

K = TypeVar("K")
V = TypeVar("V")


class _ByResource(dict[str, Kind]):
    def __missing__(self, resource: str) -> Kind:
        # Same error as over HTTP, so that callers handle both alike.
        raise NotFound(f"the server could not find the requested resource ({resource})")


class KindRegistry:
    """Kinds served by one server, with lookup tables by resource, path and kind.

    Guarantees: `change` is applied as a whole or raises ValueError without effect. Listeners are
    called synchronously after it, when all tables are updated. `by_resource` raises NotFound for
    unknown resources; the other tables raise KeyError.
    """

    def __init__(self, kinds: Iterable[Kind] = KINDS) -> None:
        #: Incremented with every change.
        self.generation = 0
        #: Kinds whose objects are stored, in discovery order.
        self.kinds: tuple[Kind, ...] = ()
        #: `kinds` plus the kinds that are measured on request.
        self.served: tuple[Kind, ...] = ()
        self.groups: tuple[str, ...] = ()
        self.group_versions: frozenset[tuple[str, str]] = frozenset()
        #: `jobs.batch` -> the kind under which its objects are stored. Raises NotFound for others.
        self.by_resource: dict[str, Kind] = _ByResource()
        #: By (group, version, plural).
        self.by_path: dict[tuple[str, str, str], Kind] = {}
        #: By (apiVersion, kind).
        self.by_kind: dict[tuple[str, str], Kind] = {}
        self._listeners: list[Listener] = []
        self._install(tuple(kinds))

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` after every change, in the order of subscription.

        Returns a function that ends the subscription.
        """
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def add(self, *kinds: Kind) -> None:
        """Serve additional kinds. Raises ValueError if a name is taken."""
        self.change(added=kinds)

    def remove(self, *kinds: Kind) -> None:
        """Stop serving kinds."""
        self.change(removed=kinds)

    def change(self, added: Iterable[Kind] = (), removed: Iterable[Kind] = ()) -> None:
        """Remove and add kinds as one change.

        Raises:
            ValueError: if a path or a name would refer to two kinds; nothing is changed then.
        """
        change = KindsChanged(tuple(added), tuple(removed))
        gone = {_path(kind) for kind in change.removed}
        kept = tuple(kind for kind in self.kinds if _path(kind) not in gone)
        self._install((*kept, *change.added))
        for listener in tuple(self._listeners):
            listener(change)

    def _install(self, kinds: tuple[Kind, ...]) -> None:
        """Replace all served kinds. Raises ValueError for two of the same name."""
        served = (*kinds, *MEASURED_KINDS)
        by_path = {_path(kind): kind for kind in served}
        by_kind = {(kind.api_version, kind.kind): kind for kind in kinds}
        if len(by_path) != len(served) or len(by_kind) != len(kinds):
            raise ValueError("two kinds of the same name")
        by_resource: dict[str, Kind] = {}
        for kind in kinds:
            if not kind.stored_as or kind.resource not in by_resource:
                by_resource[kind.resource] = kind
        self.kinds, self.served = kinds, served
        self.groups = tuple(dict.fromkeys(kind.group for kind in served))
        self.group_versions = frozenset((kind.group, kind.version) for kind in served)
        _replace_content(self.by_resource, by_resource)
        _replace_content(self.by_path, by_path)
        _replace_content(self.by_kind, by_kind)
        self.generation += 1


def _path(kind: Kind) -> tuple[str, str, str]:
    """Return the key of a kind's path."""
    return kind.group, kind.version, kind.plural


def _replace_content(table: dict[K, V], content: dict[K, V]) -> None:
    """Make a table equal to `content`, in place."""
    for key in [key for key in table if key not in content]:
        del table[key]
    table.update(content)
