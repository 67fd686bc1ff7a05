"""Tables of the stored kinds that affect something here; others show only name and age."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from onejob.api.kinds.printing import AGE, NAME, age, column, name_of
from onejob.api.strategy import Document

Cells = Callable[[Document, datetime], list[Any]]


def _budget(doc: Document, now: datetime) -> list[Any]:
    spec, status = doc.get("spec") or {}, doc.get("status") or {}
    shares = [str(spec.get(field, "N/A")) for field in ("minAvailable", "maxUnavailable")]
    return [name_of(doc), *shares, status.get("disruptionsAllowed", 0), age(doc, now)]


def _priority_class(doc: Document, now: datetime) -> list[Any]:
    is_default = doc.get("globalDefault", False)
    policy = doc.get("preemptionPolicy", "")
    return [name_of(doc), doc.get("value", 0), is_default, age(doc, now), policy]


TABLES: Final[dict[str, tuple[list[dict[str, Any]], Cells]]] = {
    "poddisruptionbudgets.policy": (
        [
            NAME,
            column("Min Available", "How many Pods must be available."),
            column("Max Unavailable", "How many Pods may be unavailable."),
            column("Allowed Disruptions", "How many Pods may be evicted now.", type="integer"),
            AGE,
        ],
        _budget,
    ),
    "priorityclasses.scheduling.k8s.io": (
        [
            NAME,
            column("Value", "The priority of its Pods.", type="integer"),
            column("Global-Default", "Whether Pods without a class get it.", type="boolean"),
            AGE,
            column("PreemptionPolicy", "Whether its Pods preempt others."),
        ],
        _priority_class,
    ),
}
