"""Memory census: the size of every container reachable from an object, by its path.

It also finds containers that no test expected to grow.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from types import MethodType
from typing import Any

#: Path -> number of items; containers that are items of one container count as one.
Holdings = Mapping[str, int]

_CONTAINERS = (dict, list, set, frozenset, deque)


def holdings(
    root: object, *, packages: frozenset[str] = frozenset({"onejob", "tests", "sim"})
) -> Holdings:
    """Return the sizes of all reachable containers.

    Follows instances of the packages' classes, also through bound methods that were passed as
    callbacks, and containers; but not tuples, which do not grow, nor running code.
    """
    found: dict[str, int] = {}
    seen: set[int] = set()
    todo: deque[tuple[str, object]] = deque([(type(root).__name__, root)])
    while todo:
        path, thing = todo.popleft()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, _CONTAINERS):
            found[path] = found.get(path, 0) + len(thing)
            todo.extend((f"{path}[]", item) for item in _items(thing))
        elif isinstance(thing, MethodType):
            todo.append((type(thing.__self__).__name__, thing.__self__))
        elif type(thing).__module__.split(".")[0] in packages:
            todo.extend((f"{path}.{name}", value) for name, value in _attributes(thing))
    return found


def _items(container: Any) -> Iterable[object]:
    return container.values() if isinstance(container, dict) else container


def _attributes(thing: object) -> Iterator[tuple[str, object]]:
    yield from vars(thing).items() if hasattr(thing, "__dict__") else ()
    for owner in type(thing).__mro__:
        slots = owner.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(thing, name):
                yield name, getattr(thing, name)
