"""Upstream's defaults and rules for kinds that are only stored.

Limited to the rules without which an object would be useless, or would look different to the client
that wrote it.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from onejob.api.kinds.admission_rules import (
    check_webhooks,
    default_service_port,
    default_webhooks,
)
from onejob.api.kinds.base import fill
from onejob.api.kinds.claim_rules import check_claim, check_storage_class, check_volume
from onejob.api.kinds.gang_rules import (
    check_pod_group,
    check_workload,
    forbidden_group_changes,
)
from onejob.api.kinds.pod.defaults import default_pod_template
from onejob.api.kinds.pod.resources import validate_resources
from onejob.api.kinds.pod.template import validate_pod_ttl
from onejob.api.kinds.policy_rules import (
    check_mutating_policy,
    check_mutating_policy_binding,
    check_validating_policy,
    check_validating_policy_binding,
    default_policy,
    default_policy_binding,
)
from onejob.api.kinds.quota_rules import (
    check_limit_range,
    check_quota,
    default_limit_range,
)
from onejob.api.kinds.workloads import check_deployment, check_replica_set
from onejob.api.strategy import Document
from onejob.objects.meta import LabelSelector
from onejob.planning.pod.priority import system_class_problem
from onejob.wire.field_errors import FieldError, forbidden, invalid, not_supported, required
from onejob.wire.labels import validate_label_selector
from onejob.wire.names import label_errors
from onejob.wire.selectors import matcher_of

_MAX_USER_PRIORITY: Final = 1_000_000_000
_UNHEALTHY_POLICIES: Final = ("AlwaysAllow", "IfHealthyBudget")


def _no_defaults(doc: Document) -> None:
    pass


def _no_checks(doc: Document) -> list[FieldError]:
    return []


def _no_change_checks(new: Document, old: Document) -> list[FieldError]:
    return []


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    default: Callable[[Document], None] = _no_defaults
    #: Paths of fields that must not be empty; `[]` stands for every item of a list.
    required: tuple[str, ...] = ()
    check: Callable[[Document], list[FieldError]] = _no_checks
    immutable: tuple[str, ...] = ()
    #: Further restrictions on changes from the second to the first document.
    check_change: Callable[[Document, Document], list[FieldError]] = _no_change_checks
    #: Sections that updates do not change.
    kept: tuple[str, ...] = ()
    #: `status.phase` of a new object.
    first_phase: str = ""

    def missing_fields(self, doc: Document) -> list[FieldError]:
        return [
            required(place)
            for path in self.required
            for place, value in _values(doc, path, "")
            if value in _EMPTY
        ]

    def forbidden_changes(self, new: Document, old: Document) -> list[FieldError]:
        return [
            invalid(path, _value_at(new, path), "field is immutable")
            for path in self.immutable
            if _value_at(new, path) != _value_at(old, path)
        ] + self.check_change(new, old)


NO_RULES: Final = Rules()


def _value_at(doc: Mapping[str, Any], path: str) -> Any:
    value: Any = doc
    for field in path.split("."):
        value = value.get(field) if isinstance(value, dict) else None
    return value


_EMPTY: Final[tuple[object, ...]] = (None, "", [], {})


def _values(parent: Any, path: str, before: str) -> Iterator[tuple[str, Any]]:
    """Yield every (field, value) at a path; the value is None where it is absent."""
    first, _, rest = path.partition(".")
    name = first.removesuffix("[]")
    place = f"{before}.{name}" if before else name
    value = parent.get(name) if isinstance(parent, dict) else None
    if not rest:
        yield place, value
    elif first.endswith("[]"):
        for index, item in enumerate(value or ()):
            yield from _values(item, rest, f"{place}[{index}]")
    else:
        yield from _values(value, rest, place)


# --- workloads ----------------------------------------------------------------------------


def _default_workload(doc: Document, **defaults: Any) -> dict[str, Any]:
    """Set the defaults of the Pod template and the given ones of the spec in place; return the
    spec."""
    spec: dict[str, Any] = doc.setdefault("spec", {})
    if spec.get("template"):
        default_pod_template(spec)
    return fill(spec, **defaults)


def _default_deployment(doc: Document) -> None:
    spec = _default_workload(doc, replicas=1, revisionHistoryLimit=10, progressDeadlineSeconds=600)
    strategy = fill(spec.setdefault("strategy", {}), type="RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        fill(strategy.setdefault("rollingUpdate", {}), maxUnavailable="25%", maxSurge="25%")


def _default_replica_set(doc: Document) -> None:
    _default_workload(doc, replicas=1)


def _default_stateful_set(doc: Document) -> None:
    spec = _default_workload(
        doc, replicas=1, revisionHistoryLimit=10, podManagementPolicy="OrderedReady"
    )
    strategy = fill(spec.setdefault("updateStrategy", {}), type="RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        fill(strategy.setdefault("rollingUpdate", {}), partition=0)
    retention = spec.setdefault("persistentVolumeClaimRetentionPolicy", {})
    fill(retention, whenDeleted="Retain", whenScaled="Retain")


def _default_daemon_set(doc: Document) -> None:
    spec = _default_workload(doc, revisionHistoryLimit=10)
    strategy = fill(spec.setdefault("updateStrategy", {}), type="RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        fill(strategy.setdefault("rollingUpdate", {}), maxUnavailable=1, maxSurge=0)


def _check_workload(doc: Document) -> list[FieldError]:
    spec = doc["spec"]
    selector = spec["selector"]
    errors = validate_label_selector(selector, "spec.selector")
    labels = spec["template"].get("metadata", {}).get("labels", {})
    if not errors and not matcher_of(msgspec.convert(selector, LabelSelector)).matches(labels):
        text = "`selector` does not match template `labels`"
        errors.append(invalid("spec.template.metadata.labels", labels, text))
    replicas = spec.get("replicas", 0)
    if replicas < 0:
        text = "must be greater than or equal to 0"
        errors.append(invalid("spec.replicas", replicas, text))
    return errors + validate_pod_ttl(spec["template"]["spec"], "spec.template.spec")


def _check_pod_template(doc: Document) -> list[FieldError]:
    return validate_pod_ttl((doc.get("template") or {}).get("spec") or {}, "template.spec")


def _workload_rules(
    default: Callable[[Document], None],
    check: Callable[[Document], list[FieldError]] = _check_workload,
) -> Rules:
    return Rules(
        default=default,
        required=("spec.selector", "spec.template", "spec.template.spec.containers"),
        check=check,
        immutable=("spec.selector",),
    )


def _default_autoscaler(doc: Document) -> None:
    fill(doc.setdefault("spec", {}), minReplicas=1)


def _check_autoscaler(doc: Document) -> list[FieldError]:
    spec = doc["spec"]
    if spec["maxReplicas"] < spec["minReplicas"]:
        text = "must be greater than or equal to `minReplicas`"
        return [invalid("spec.maxReplicas", spec["maxReplicas"], text)]
    return []


def _check_disruption_budget(doc: Document) -> list[FieldError]:
    spec = doc.get("spec") or {}
    errors = []
    if "minAvailable" in spec and "maxUnavailable" in spec:
        text = "minAvailable and maxUnavailable cannot be both set"
        errors.append(invalid("spec", spec, text))
    for field in ("minAvailable", "maxUnavailable"):
        if field in spec:
            errors += _check_share(spec[field], f"spec.{field}")
    errors += validate_label_selector(spec.get("selector") or {}, "spec.selector")
    policy = spec.get("unhealthyPodEvictionPolicy")
    if policy is not None and policy not in _UNHEALTHY_POLICIES:
        path = "spec.unhealthyPodEvictionPolicy"
        errors.append(not_supported(path, policy, list(_UNHEALTHY_POLICIES)))
    return errors


def _check_share(amount: int | str, path: str) -> list[FieldError]:
    """Return the errors of an absolute number or a percentage."""
    if isinstance(amount, int):
        text = "must be greater than or equal to 0"
        return [invalid(path, amount, text)] if amount < 0 else []
    if re.fullmatch("[0-9]+%", amount) is None:
        text = (
            "a valid percent string must be a numeric string followed by an ending '%' "
            "(e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"
        )
        return [invalid(path, amount, text)]
    text = "must not be greater than 100%"
    return [invalid(path, amount, text)] if int(amount[:-1]) > 100 else []


# --- admission and the API itself ---------------------------------------------------------


_WEBHOOKS: Final = Rules(
    default=default_webhooks,
    required=("webhooks[].name",),
    check=check_webhooks,
)


def _default_api_service(doc: Document) -> None:
    default_service_port(doc.get("spec"))


def _check_api_service(doc: Document) -> list[FieldError]:
    spec, name = doc["spec"], doc["metadata"].get("name", "")
    expected = f"{spec['version']}.{spec.get('group', '')}"
    if name != expected:
        text = f'must be `spec.version+"."+spec.group`: "{expected}"'
        return [invalid("metadata.name", name, text)]
    return []


def _default_flow_schema(doc: Document) -> None:
    fill(doc.setdefault("spec", {}), matchingPrecedence=1000)


# --- classes, volumes, networks -----------------------------------------------------------


def _default_priority_class(doc: Document) -> None:
    fill(doc, value=0, preemptionPolicy="PreemptLowerPriority")


def _check_priority_class(doc: Document) -> list[FieldError]:
    name = doc["metadata"].get("name", "")
    if name.startswith("system-"):
        problem = system_class_problem(name, doc["value"], doc.get("globalDefault", False))
        text = (
            "priority class names with 'system-' prefix are reserved for system use only. error: "
        )
        return [forbidden("metadata.name", text + problem)] if problem else []
    if doc["value"] > _MAX_USER_PRIORITY:
        text = f"maximum allowed value of a user defined priority is {_MAX_USER_PRIORITY}"
        return [forbidden("value", text)]
    return []


def _check_runtime_class(doc: Document) -> list[FieldError]:
    handler = doc["handler"]
    errors = [invalid("handler", handler, text) for text in label_errors(handler)]
    fixed = (doc.get("overhead") or {}).get("podFixed") or {}
    return errors + validate_resources({"limits": fixed}, "overhead")


def _default_storage_class(doc: Document) -> None:
    fill(doc, reclaimPolicy="Delete", volumeBindingMode="Immediate")


def _default_volume(doc: Document) -> None:
    spec = doc.setdefault("spec", {})
    fill(spec, persistentVolumeReclaimPolicy="Retain", volumeMode="Filesystem")


def _default_claim(doc: Document) -> None:
    fill(doc.setdefault("spec", {}), volumeMode="Filesystem")


def _default_network_policy(doc: Document) -> None:
    spec = doc.setdefault("spec", {})
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]
    for rule in (*(spec.get("ingress") or ()), *(spec.get("egress") or ())):
        for port in rule.get("ports") or ():
            fill(port, protocol="TCP")


_ADDRESS_TYPES: Final = ["FQDN", "IPv4", "IPv6"]


def _check_endpoint_slice(doc: Document) -> list[FieldError]:
    kind = doc["addressType"]
    return [] if kind in _ADDRESS_TYPES else [not_supported("addressType", kind, _ADDRESS_TYPES)]


RULES: Final[Mapping[str, Rules]] = {
    "deployments.apps": _workload_rules(_default_deployment, check_deployment),
    "statefulsets.apps": _workload_rules(_default_stateful_set),
    "replicasets.apps": _workload_rules(_default_replica_set, check_replica_set),
    "daemonsets.apps": _workload_rules(_default_daemon_set),
    "horizontalpodautoscalers.autoscaling": Rules(
        default=_default_autoscaler,
        required=("spec.maxReplicas", "spec.scaleTargetRef.kind", "spec.scaleTargetRef.name"),
        check=_check_autoscaler,
    ),
    "poddisruptionbudgets.policy": Rules(check=_check_disruption_budget),
    "mutatingwebhookconfigurations.admissionregistration.k8s.io": _WEBHOOKS,
    "validatingwebhookconfigurations.admissionregistration.k8s.io": _WEBHOOKS,
    "mutatingadmissionpolicies.admissionregistration.k8s.io": Rules(
        default=default_policy, check=check_mutating_policy
    ),
    "mutatingadmissionpolicybindings.admissionregistration.k8s.io": Rules(
        default=default_policy_binding, check=check_mutating_policy_binding
    ),
    "validatingadmissionpolicies.admissionregistration.k8s.io": Rules(
        default=default_policy, check=check_validating_policy
    ),
    "validatingadmissionpolicybindings.admissionregistration.k8s.io": Rules(
        default=default_policy_binding, check=check_validating_policy_binding
    ),
    "apiservices.apiregistration.k8s.io": Rules(
        default=_default_api_service,
        required=("spec.version", "spec.groupPriorityMinimum", "spec.versionPriority"),
        check=_check_api_service,
    ),
    "flowschemas.flowcontrol.apiserver.k8s.io": Rules(
        default=_default_flow_schema, required=("spec.priorityLevelConfiguration.name",)
    ),
    "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io": Rules(required=("spec.type",)),
    "certificatesigningrequests.certificates.k8s.io": Rules(
        required=("spec.request", "spec.signerName", "spec.usages"), kept=("spec",)
    ),
    "priorityclasses.scheduling.k8s.io": Rules(
        default=_default_priority_class,
        check=_check_priority_class,
        immutable=("value", "preemptionPolicy"),
    ),
    "podgroups.scheduling.k8s.io": Rules(
        check=check_pod_group, check_change=forbidden_group_changes
    ),
    "workloads.scheduling.k8s.io": Rules(
        check=check_workload, check_change=forbidden_group_changes
    ),
    "resourceclaims.resource.k8s.io": Rules(immutable=("spec",)),
    "resourceclaimtemplates.resource.k8s.io": Rules(immutable=("spec",)),
    "resourceslices.resource.k8s.io": Rules(
        required=("spec.driver", "spec.pool.name"), immutable=("spec.driver", "spec.nodeName")
    ),
    "runtimeclasses.node.k8s.io": Rules(
        required=("handler",), check=_check_runtime_class, immutable=("handler",)
    ),
    "storageclasses.storage.k8s.io": Rules(
        default=_default_storage_class,
        required=("provisioner",),
        check=check_storage_class,
        immutable=("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"),
    ),
    "persistentvolumes": Rules(
        default=_default_volume,
        required=("spec.capacity", "spec.accessModes"),
        check=check_volume,
        first_phase="Pending",
    ),
    "persistentvolumeclaims": Rules(
        default=_default_claim,
        check=check_claim,
        first_phase="Pending",
    ),
    "networkpolicies.networking.k8s.io": Rules(default=_default_network_policy),
    "ingresses.networking.k8s.io": Rules(required=("spec.rules[].http.paths[].pathType",)),
    "endpointslices.discovery.k8s.io": Rules(
        required=("addressType",), check=_check_endpoint_slice, immutable=("addressType",)
    ),
    "limitranges": Rules(
        default=default_limit_range, required=("spec.limits[].type",), check=check_limit_range
    ),
    "resourcequotas": Rules(check=check_quota, immutable=("spec.scopes",)),
    "podtemplates": Rules(check=_check_pod_template),
    "controllerrevisions.apps": Rules(required=("revision",), immutable=("data",)),
}
