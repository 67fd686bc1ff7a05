"""New Pods get the priority of their PriorityClass.

Pods without a class, where no class is the default, are left as they are: no priority is 0.
"""

from typing import Any, Final

import msgspec

from onejob.api.sections import held
from onejob.api.strategy import Document
from onejob.objects.meta import Key
from onejob.planning.pod.priority import (
    SYSTEM_CLASSES,
    PriorityClass,
    contradiction,
    default_class,
)
from onejob.store.base import Store

PRIORITY_CLASSES: Final = "priorityclasses.scheduling.k8s.io"
#: A spec without these bytes says nothing about priority.
_MARKS: Final = (b'"priority', b'"preemptionPolicy"')
_FIELDS: Final = ("priorityClassName", "priority", "preemptionPolicy")


class _Stored(msgspec.Struct, rename="camel"):
    metadata: dict[str, Any]
    value: int = 0
    preemption_policy: str = "PreemptLowerPriority"
    global_default: bool = False


class Priorities:
    def __init__(self, store: Store) -> None:
        self._store = store
        #: By name; what one version of a class says.
        self._read: dict[str, tuple[int, PriorityClass]] = {}

    def concern(self, spec: bytes) -> bool:
        """Whether anything is to be said about the priority of a Pod with these bytes."""
        return any(mark in spec for mark in _MARKS) or self.default() is not None

    def default(self) -> PriorityClass | None:
        """The class of Pods that name none."""
        if not self._store.count(PRIORITY_CLASSES):
            return None
        stored = self._store.list(PRIORITY_CLASSES).items
        return default_class(self._class(item.key, item.revision, item.value) for item in stored)

    def admit(self, pod: Document) -> str:
        """Write its priority into a new Pod. Returns why it is refused, if it is."""
        spec: Any = held(pod, "spec") or {}
        if isinstance(spec, msgspec.Raw):
            if not self.concern(bytes(spec)):
                return ""
            spec = msgspec.json.decode(spec)
        elif not any(field in spec for field in _FIELDS) and self.default() is None:
            return ""
        name = spec.get("priorityClassName", "")
        granted = self._named(name) if name else self.default()
        if name and granted is None:
            return f"no PriorityClass with name {name} was found"
        refusal = contradiction(granted, spec.get("priority"), spec.get("preemptionPolicy", ""))
        if granted is not None and not refusal:
            pod["spec"] = {
                **spec,
                "priorityClassName": granted.name,
                "priority": granted.value,
                "preemptionPolicy": granted.preemption_policy,
            }
        return refusal

    def second_default(self, document: Document, *, is_new: bool) -> str:
        """Why a PriorityClass may not be the default; "" if it may, or is none."""
        if not document.get("globalDefault"):
            return ""
        default = self.default()
        if default is None or (not is_new and default.name == document["metadata"]["name"]):
            return ""
        return (
            f"PriorityClass {default.name} is already marked as default. Only one default can exist"
        )

    def _named(self, name: str) -> PriorityClass | None:
        stored = self._store.newest(Key(PRIORITY_CLASSES, "", name))
        if stored is None:
            return SYSTEM_CLASSES.get(name)
        return self._class(stored.key, stored.revision, stored.value)

    def _class(self, key: Key, revision: int, document: bytes) -> PriorityClass:
        known = self._read.get(key.name)
        if known is None or known[0] != revision:
            read = msgspec.json.decode(document, type=_Stored)
            made = PriorityClass(key.name, read.value, read.preemption_policy, read.global_default)
            known = self._read[key.name] = (revision, made)
        return known[1]
