"""Priority admission: set a new Pod's priority from its PriorityClass.

Pods without a class are not changed if no class is the global default: an absent priority means 0.
"""

from typing import Any, Final

import msgspec

from onejob.api.admission.limit_ranges import Objects
from onejob.api.strategy import Document
from onejob.planning.pod.priority import (
    SYSTEM_CLASSES,
    PriorityClass,
    contradiction,
    default_class,
)
from onejob.store.base import Change

PRIORITY_CLASSES: Final = "priorityclasses.scheduling.k8s.io"
#: Markers of priority fields in an encoded spec.
_FIELDS: Final = ("priorityClassName", "priority", "preemptionPolicy")


_PREEMPTS: Final = "PreemptLowerPriority"


class _Stored(msgspec.Struct, rename="camel"):
    metadata: dict[str, Any]
    value: int = 0
    preemption_policy: str = _PREEMPTS
    global_default: bool = False


class Priorities:
    """PriorityClasses, including staged writes, as in `LimitRanges`."""

    def __init__(self, store: Objects) -> None:
        self._store = store
        #: Whether Pods without a class get the priority 0 explicitly.
        self.always = False
        self._classes: dict[str, PriorityClass] = {}
        #: Global default class, for Pods without a class name.
        self._default: PriorityClass | None = None
        self.reload()

    def staged(self, written: Change) -> None:
        """Handle a staged write of a PriorityClass."""
        key = written.key
        if key.resource != PRIORITY_CLASSES:
            return
        classes = {name: found for name, found in self._classes.items() if name != key.name}
        if written.value is not None:
            classes[key.name] = _read(written.value)
        self._set(classes)

    def reload(self) -> None:
        """Replace all classes by the stored ones."""
        stored = self._store.list(PRIORITY_CLASSES).items
        self._set({item.key.name: _read(item.value) for item in stored})

    def _set(self, classes: dict[str, PriorityClass]) -> None:
        """Replace the classes and the default."""
        # Replace rather than modify: the worker thread may be reading the dict.
        self._classes = classes
        self._default = default_class(classes.values())

    def admit(self, pod: Document) -> str:
        """Set the priority of a new Pod. Returns the reason for a rejection, or ""."""
        spec: Any = pod.get("spec") or {}
        if not any(field in spec for field in _FIELDS) and self._default is None:
            if self.always:
                pod["spec"] = {**spec, "priority": 0, "preemptionPolicy": _PREEMPTS}
            return ""
        name = spec.get("priorityClassName", "")
        granted = self._find_class(name) if name else self._default
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
        """Return the reason why a PriorityClass may not become the global default.

        "" if it may, or if it does not claim to be the default.
        """
        if not document.get("globalDefault"):
            return ""
        default = self._default
        if default is None or (not is_new and default.name == document["metadata"]["name"]):
            return ""
        return (
            f"PriorityClass {default.name} is already marked as default. Only one default can exist"
        )

    def _find_class(self, name: str) -> PriorityClass | None:
        """Return the class of this name, stored or built in; None if there is none."""
        return self._classes.get(name) or SYSTEM_CLASSES.get(name)


def _read(document: bytes) -> PriorityClass:
    """Return the PriorityClass in a document."""
    read = msgspec.json.decode(document, type=_Stored)
    name = read.metadata["name"]
    return PriorityClass(name, read.value, read.preemption_policy, read.global_default)
