"""Strategy of kinds without a controller here.

Their objects are defaulted, validated in the essentials, stored and watched. Creating an object
that would have an effect in a cluster returns a warning.
"""

from collections.abc import Callable
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from onejob.api.kinds.base import (
    BaseStrategy,
    keep_generation,
    keep_section,
    keep_status,
)
from onejob.api.kinds.printing import AGE, NAME, age, column, name_of
from onejob.api.strategy import Document
from onejob.planning.claims.names import IS_DEFAULT
from onejob.wire.field_errors import FieldError
from onejob.wire.kinds import Kind

if TYPE_CHECKING:
    from onejob.api.kinds.stored_rules import Rules

_NO_PODS: Final = "no controller makes Pods of it"
_NO_DEVICES: Final = "no devices are allocated"
_NO_ROUTES: Final = "nothing is routed by it"

#: Missing effect by resource. Kinds that are mere records (PodTemplates, ControllerRevisions) are
#: not listed, because they have no effect in a cluster either.
WITHOUT_EFFECT: Final = {
    "ingresses.networking.k8s.io": _NO_ROUTES,
    "networkpolicies.networking.k8s.io": "traffic is not restricted",
    "statefulsets.apps": _NO_PODS,
    "daemonsets.apps": _NO_PODS,
    "horizontalpodautoscalers.autoscaling": "nothing is scaled",
    "deviceclasses.resource.k8s.io": _NO_DEVICES,
    "resourceclaims.resource.k8s.io": _NO_DEVICES,
    "resourceclaimtemplates.resource.k8s.io": "no claims are made of it",
    "resourceslices.resource.k8s.io": _NO_DEVICES,
    "runtimeclasses.node.k8s.io": "Pods do not get its handler, overhead or placement",
    "apiservices.apiregistration.k8s.io": "requests are not passed on to its service",
    "flowschemas.flowcontrol.apiserver.k8s.io": "requests are not queued by it",
    "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io": "requests are not queued by it",
}

#: Kinds with metadata.generation.
_COUNTED: Final = frozenset(
    {
        "daemonsets.apps",
        "deployments.apps",
        "endpointslices.discovery.k8s.io",
        "flowschemas.flowcontrol.apiserver.k8s.io",
        "ingresses.networking.k8s.io",
        "mutatingadmissionpolicies.admissionregistration.k8s.io",
        "mutatingadmissionpolicybindings.admissionregistration.k8s.io",
        "mutatingwebhookconfigurations.admissionregistration.k8s.io",
        "networkpolicies.networking.k8s.io",
        "poddisruptionbudgets.policy",
        "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io",
        "replicasets.apps",
        "statefulsets.apps",
        "validatingadmissionpolicies.admissionregistration.k8s.io",
        "validatingadmissionpolicybindings.admissionregistration.k8s.io",
        "validatingwebhookconfigurations.admissionregistration.k8s.io",
    }
)
#: Kinds whose rules and table are in a module of their own.
_WORKLOADS: Final = frozenset({"deployments.apps", "replicasets.apps"})
_NOT_CONTENT: Final = frozenset({"apiVersion", "kind", "metadata", "status"})


class StoredStrategy(BaseStrategy):
    """Strategy of a kind that is only stored."""

    def __init__(self, kind: Kind) -> None:
        super().__init__(kind)
        self._is_counted = kind.resource in _COUNTED
        self._table = _TABLES.get(kind.resource)
        self._is_workload = kind.resource in _WORKLOADS

    @cached_property
    def _rules(self) -> "Rules":
        """Upstream's rules of the kind."""
        # Imported with the first object of these kinds: few servers and no run have any.
        from onejob.api.kinds.stored_rules import NO_RULES, RULES

        return RULES.get(self.kind.resource, NO_RULES)

    def default(self, doc: Document, old: Document | None = None) -> None:
        self._rules.default(doc)

    def prepare_create(self, doc: Document) -> None:
        super().prepare_create(doc)
        if self._rules.first_phase:
            doc["status"] = {"phase": self._rules.first_phase}
        if self._is_counted:
            doc["metadata"]["generation"] = 1

    def validate_create(self, doc: Document) -> list[FieldError]:
        return super().validate_create(doc) + self._validate(doc)

    def prepare_update(self, new: Document, old: Document) -> None:
        if self._has_status:
            keep_status(new, old)
        for name in self._rules.kept:
            keep_section(new, old, name)
        if self._is_counted:
            keep_generation(new, old, changed=_own_fields(new) != _own_fields(old))

    def validate_update(self, new: Document, old: Document) -> list[FieldError]:
        errors = super().validate_update(new, old) + self._validate(new)
        return errors + self._rules.forbidden_changes(new, old)

    def warnings_on_create(self, doc: Document) -> list[str]:
        text = WITHOUT_EFFECT.get(self.kind.resource)
        return [f"{self.kind.kind} is stored, but has no effect here: {text}"] if text else []

    def columns(self) -> list[dict[str, Any]]:
        if self._is_workload:
            return self._workload_table[0]
        return super().columns() if self._table is None else self._table[0]

    def cells(self, doc: Document, now: datetime) -> list[Any]:
        if self._is_workload:
            return self._workload_table[1](doc, now)
        return super().cells(doc, now) if self._table is None else self._table[1](doc, now)

    @cached_property
    def _workload_table(self) -> "tuple[list[dict[str, Any]], _Cells]":
        from onejob.api.kinds.workloads import (
            DEPLOYMENT_COLUMNS,
            REPLICA_SET_COLUMNS,
            deployment_cells,
            replica_set_cells,
        )

        if self.kind.resource == "deployments.apps":
            return DEPLOYMENT_COLUMNS, deployment_cells
        return REPLICA_SET_COLUMNS, replica_set_cells

    def _validate(self, doc: Document) -> list[FieldError]:
        """Return the missing fields, or other errors if none is missing."""
        # If required fields are missing, other checks would only report them again.
        return self._rules.missing_fields(doc) or self._rules.check(doc)


def _own_fields(doc: Document) -> dict[str, object]:
    """Return the object's fields other than metadata and type."""
    return {field: value for field, value in doc.items() if field not in _NOT_CONTENT}


_Cells = Callable[[Document, datetime], list[Any]]


def _budget_cells(doc: Document, now: datetime) -> list[Any]:
    spec, status = doc.get("spec") or {}, doc.get("status") or {}
    shares = [str(spec.get(field, "N/A")) for field in ("minAvailable", "maxUnavailable")]
    return [name_of(doc), *shares, status.get("disruptionsAllowed", 0), age(doc, now)]


def _storage_class(doc: Document, now: datetime) -> list[Any]:
    name = name_of(doc)
    annotations = doc["metadata"].get("annotations") or {}
    if annotations.get(IS_DEFAULT) == "true":
        name += " (default)"
    modes = [doc.get("reclaimPolicy", "Delete"), doc.get("volumeBindingMode", "<unset>")]
    grows = doc.get("allowVolumeExpansion", False)
    return [name, doc.get("provisioner", ""), *modes, grows, age(doc, now)]


def _priority_class(doc: Document, now: datetime) -> list[Any]:
    is_default = doc.get("globalDefault", False)
    policy = doc.get("preemptionPolicy", "")
    return [name_of(doc), doc.get("value", 0), is_default, age(doc, now), policy]


#: Tables of the kinds that affect something here; others show only name and age.
_TABLES: Final[dict[str, tuple[list[dict[str, Any]], _Cells]]] = {
    "poddisruptionbudgets.policy": (
        [
            NAME,
            column("Min Available", "How many Pods must be available."),
            column("Max Unavailable", "How many Pods may be unavailable."),
            column("Allowed Disruptions", "How many Pods may be evicted now.", type="integer"),
            AGE,
        ],
        _budget_cells,
    ),
    "storageclasses.storage.k8s.io": (
        [
            NAME,
            column("Provisioner", "Who makes the volumes of the class."),
            column("ReclaimPolicy", "What happens to its volumes when their claims are deleted."),
            column("VolumeBindingMode", "When its claims are bound."),
            column("AllowVolumeExpansion", "Whether its claims may grow."),
            AGE,
        ],
        _storage_class,
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
