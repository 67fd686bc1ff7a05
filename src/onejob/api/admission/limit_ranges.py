"""LimitRanges by namespace, including staged writes."""

from typing import Final, Protocol

import msgspec

from onejob.planning.quota.limit_range import Limit, read_limits
from onejob.store.base import Change, Page

LIMIT_RANGES: Final = "limitranges"


class Objects(Protocol):
    def list(self, resource: str, namespace: str = "") -> Page: ...


class LimitRanges:
    """Limits in force, by namespace."""

    def __init__(self, store: Objects) -> None:
        self._store = store
        self._ranges: dict[str, dict[str, tuple[Limit, ...]]] = {}
        self.reload()

    def of(self, namespace: str) -> tuple[tuple[Limit, ...], ...]:
        """Return the limits of each LimitRange in the namespace, to be applied in order."""
        found = self._ranges.get(namespace)
        return () if found is None else tuple(found.values())

    def staged(self, written: Change) -> None:
        """Handle a staged write of a LimitRange."""
        key = written.key
        if key.resource != LIMIT_RANGES:
            return
        # Replace rather than modify: the worker thread may be reading the dict.
        ranges = dict(self._ranges.get(key.namespace, {}))
        ranges.pop(key.name, None)
        if written.value is not None:
            ranges[key.name] = read_limits(msgspec.json.decode(written.value))
        if ranges:
            self._ranges[key.namespace] = ranges
        else:
            self._ranges.pop(key.namespace, None)

    def reload(self) -> None:
        """Replace all limits by the stored ones."""
        ranges: dict[str, dict[str, tuple[Limit, ...]]] = {}
        for stored in self._store.list(LIMIT_RANGES).items:
            limits = read_limits(msgspec.json.decode(stored.value))
            ranges.setdefault(stored.key.namespace, {})[stored.key.name] = limits
        self._ranges = ranges
