"""ResourceQuota usage per namespace, exact at any moment.

Updated with every staged write, so that a decision counts all earlier writes whether or not they
are durable yet. Only namespaces with a quota are tracked.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Final, Protocol

import msgspec

from onejob.api.strategy import Document
from onejob.objects.meta import EVENTS, PODS, Key
from onejob.planning.quota.amounts import ZERO, Amounts
from onejob.planning.quota.resource_quota import (
    CLAIMS,
    SERVICES,
    ObjectUsage,
    Quota,
    change,
    counted,
    counts,
    pod_usage,
    read_quota,
    refusal,
    usage_of,
)
from onejob.store.base import Change, Page
from onejob.wire.quantity import Quantity

RESOURCE_QUOTAS: Final = "resourcequotas"
#: Resources whose objects use varying amounts; all others are only counted.
_MEASURED: Final = frozenset((PODS, SERVICES, CLAIMS))


class NewestObjects(Protocol):
    """Subset of the store interface used here."""

    def newest_in(self, resource: str, namespace: str) -> Iterator[tuple[str, bytes | None]]: ...

    def list(self, resource: str, namespace: str = "") -> Page: ...


class _Usage:
    """Quota usage of one namespace."""

    def __init__(self, quotas: Iterable[Quota]) -> None:
        self.quotas = {quota.name: quota for quota in quotas}
        self.used: dict[str, Amounts] = {
            quota.name: dict.fromkeys(quota.hard, ZERO) for quota in self.quotas.values()
        }
        #: Usage of each object of the measured resources, by resource and name.
        self._objects: dict[tuple[str, str], ObjectUsage] = {}

    def put(self, resource: str, name: str, usage: ObjectUsage | None, *, known: bool) -> bool:
        """Record an object's current usage (None: deleted); `known` if it was counted before.

        Returns whether the totals changed.
        """
        if resource in _MEASURED:
            before = self._objects.pop((resource, name), None)
            if usage is not None:
                self._objects[resource, name] = usage
        else:
            before = counted(resource) if known else None
        if before == usage:
            return False
        for quota in self.quotas.values():
            used = self.used[quota.name]
            if before is not None and counts(quota, before):
                change(used, before, quota.hard, -1)
            if usage is not None and counts(quota, usage):
                change(used, usage, quota.hard, 1)
        return True

    def of(self, resource: str, name: str) -> ObjectUsage | None:
        """Return the usage of one object; None if it is not counted."""
        return self._objects.get((resource, name))


class Quotas:
    """Quota usage of all namespaces with a ResourceQuota.

    Guarantees: `refusal` and `used` include all staged writes. The usage of a namespace is computed
    on first use and updated by `staged`, which must receive every write; `reload` must follow a
    rollback.

    Concurrency: `refusal` must be called on the event loop's thread, directly before staging.
    """

    def __init__(self, store: NewestObjects, resources: Callable[[], Iterable[str]]) -> None:
        """`resources` returns all namespaced resources that are served."""
        self._store = store
        self._resources = resources
        self._quotas: dict[str, dict[str, Quota]] = {}
        self.usage: dict[str, _Usage] = {}
        #: Callback with the namespace whose usage or quotas changed.
        self.on_change: Callable[[str], None] | None = None
        self.reload()

    def has_quota(self, namespace: str) -> bool:
        return namespace in self._quotas

    @property
    def namespaces(self) -> Iterable[str]:
        """Namespaces with quotas."""
        return tuple(self._quotas)

    def refusal(self, key: Key, document: Document, *, created: bool) -> str:
        """Return the reason why an object may not be created or updated to `document`; "" if it
        may."""
        resource, namespace, name = key
        if namespace not in self._quotas or resource == EVENTS:
            return ""
        if not created and resource not in _MEASURED:
            return ""
        current = self._current_usage(namespace)
        spec = document.get("spec") or {}
        return refusal(
            [(quota, current.used[quota.name]) for quota in current.quotas.values()],
            usage_of(resource, {"spec": spec}),
            spec if resource == PODS else None,
            None if created else current.of(resource, name),
        )

    def used(self, namespace: str) -> Mapping[str, tuple[Mapping[str, Quantity], Amounts]]:
        """Return the hard limits and the usage of each quota, by quota name."""
        if namespace not in self._quotas:
            return {}
        current = self._current_usage(namespace)
        return {
            quota.name: (quota.hard, dict(current.used[quota.name]))
            for quota in current.quotas.values()
        }

    def staged(self, written: Change) -> None:
        """Update the usage for a staged write."""
        key = written.key
        if key.resource == RESOURCE_QUOTAS:
            self._quota_staged(key.namespace, key.name, written.value)
        usage = self.usage.get(key.namespace)
        if usage is None or key.resource == EVENTS:
            # As upstream: Events count towards no quota.
            return
        value = written.value
        if value is None and written.previous is None:
            # A damaged object, which was never counted.
            return
        now = None if value is None else _usage_of(key.resource, value)
        known = written.previous_revision != 0
        if usage.put(key.resource, key.name, now, known=known) and self.on_change is not None:
            self.on_change(key.namespace)

    def reload(self) -> None:
        """Rebuild from the store after a rollback, which may have discarded staged writes."""
        self.usage.clear()
        self._quotas.clear()
        for stored in self._store.list(RESOURCE_QUOTAS).items:
            quota = read_quota(msgspec.json.decode(stored.value))
            self._quotas.setdefault(stored.key.namespace, {})[quota.name] = quota
        if self.on_change is not None:
            for namespace in self._quotas:
                self.on_change(namespace)

    def _quota_staged(self, namespace: str, name: str, value: bytes | None) -> None:
        """Take over a staged change of a quota; `value` None removes it."""
        quotas = self._quotas.setdefault(namespace, {})
        before = quotas.pop(name, None)
        if value is not None:
            quotas[name] = read_quota(msgspec.json.decode(value))
        if not quotas:
            del self._quotas[namespace]
        if quotas.get(name) != before:
            self.usage.pop(namespace, None)
            if self.on_change is not None:
                self.on_change(namespace)

    def _current_usage(self, namespace: str) -> _Usage:
        """Return the namespace's usage, computing it on first use."""
        usage = self.usage.get(namespace)
        if usage is None:
            usage = self.usage[namespace] = _Usage(self._quotas[namespace].values())
            for resource in self._resources():
                if resource == EVENTS:
                    continue
                for name, value in self._store.newest_in(resource, namespace):
                    # A value of None is stored on disk only: a Pod that has ended, or a resource
                    # that is merely counted.
                    used = counted(resource) if value is None else _usage_of(resource, value)
                    usage.put(resource, name, used, known=False)
        return usage


class _Status(msgspec.Struct, frozen=True):
    phase: str = ""


class _Pod(msgspec.Struct):
    spec: msgspec.Raw
    status: _Status = _Status()


_read_pod = msgspec.json.Decoder(_Pod).decode


def _usage_of(resource: str, value: bytes) -> ObjectUsage:
    """Return the usage of an object by its document."""
    if resource == PODS:
        pod = _read_pod(value)
        return _pod_usage(bytes(pod.spec), pod.status.phase in ("Succeeded", "Failed"))
    if resource in _MEASURED:
        return usage_of(resource, msgspec.json.decode(value))
    return counted(resource)


@lru_cache(maxsize=256)
def _pod_usage(spec: bytes, ended: bool) -> ObjectUsage:
    """Return the usage of a Pod by its encoded spec, from a cache."""
    return pod_usage(msgspec.json.decode(spec), ended=ended)
