"""Upstream's rules and tables of Deployments and ReplicaSets."""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from onejob.api.kinds.pod.template import validate_pod_template, validate_pod_ttl
from onejob.api.kinds.printing import AGE, NAME, age, column, name_of, selector_text
from onejob.api.strategy import Document
from onejob.objects.meta import LabelSelector
from onejob.wire.field_errors import FieldError, forbidden, invalid, not_supported
from onejob.wire.labels import validate_label_selector
from onejob.wire.selectors import matcher_of

_NOT_NEGATIVE: Final = "must be greater than or equal to 0"
_STRATEGIES: Final = ["Recreate", "RollingUpdate"]


def check_deployment(doc: Document) -> list[FieldError]:
    spec = doc["spec"]
    errors = _check_selected_template(spec, "deployment")
    errors += _not_negative(spec, "replicas", "minReadySeconds", "revisionHistoryLimit")
    errors += _check_strategy(spec.get("strategy") or {})
    deadline, ready = spec.get("progressDeadlineSeconds"), spec.get("minReadySeconds", 0)
    if deadline is not None:
        errors += _not_negative(spec, "progressDeadlineSeconds")
        if deadline <= ready:
            text = "must be greater than minReadySeconds"
            errors.append(invalid("spec.progressDeadlineSeconds", deadline, text))
    return errors


def check_replica_set(doc: Document) -> list[FieldError]:
    spec = doc["spec"]
    errors = _check_selected_template(spec, "replica set")
    return errors + _not_negative(spec, "replicas", "minReadySeconds")


def _check_selected_template(spec: Mapping[str, Any], owner: str) -> list[FieldError]:
    """Return the errors of a selector and of the Pod template, whose labels it must match."""
    selector, template = spec["selector"], spec["template"]
    errors = validate_label_selector(selector, "spec.selector")
    if not errors and not selector.get("matchLabels") and not selector.get("matchExpressions"):
        errors.append(invalid("spec.selector", selector, f"empty selector is invalid for {owner}"))
    labels = template.get("metadata", {}).get("labels", {})
    if not errors and not matcher_of(msgspec.convert(selector, LabelSelector)).matches(labels):
        text = "`selector` does not match template `labels`"
        errors.append(invalid("spec.template.metadata.labels", labels, text))
    pod = template.get("spec", {})
    errors += validate_pod_ttl(pod, "spec.template.spec")
    errors += validate_pod_template(template, "spec.template")
    policy = pod.get("restartPolicy")
    if policy in ("Never", "OnFailure"):
        errors.append(not_supported("spec.template.spec.restartPolicy", policy, ["Always"]))
    if pod.get("activeDeadlineSeconds") is not None:
        text = "activeDeadlineSeconds in ReplicaSet is not Supported"
        errors.append(forbidden("spec.template.spec.activeDeadlineSeconds", text))
    return errors


def _not_negative(spec: Mapping[str, Any], *fields: str) -> list[FieldError]:
    return [
        invalid(f"spec.{field}", spec[field], _NOT_NEGATIVE)
        for field in fields
        if spec.get(field, 0) < 0
    ]


def _check_strategy(strategy: Mapping[str, Any]) -> list[FieldError]:
    kind, update = strategy.get("type"), strategy.get("rollingUpdate")
    if kind == "Recreate":
        if update is None:
            return []
        text = "may not be specified when strategy `type` is 'Recreate'"
        return [forbidden("spec.strategy.rollingUpdate", text)]
    if kind != "RollingUpdate":
        return [not_supported("spec.strategy.type", kind, _STRATEGIES)]
    path, update = "spec.strategy.rollingUpdate", update or {}
    errors = []
    for field in ("maxUnavailable", "maxSurge"):
        share = update.get(field, 0)
        if isinstance(share, int):
            if share < 0:
                errors.append(invalid(f"{path}.{field}", share, _NOT_NEGATIVE))
        elif re.fullmatch("[0-9]+%", share) is None:
            text = (
                "a valid percent string must be a numeric string followed by an ending '%' "
                "(e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"
            )
            errors.append(invalid(f"{path}.{field}", share, text))
        elif field == "maxUnavailable" and int(share[:-1]) > 100:
            errors.append(invalid(f"{path}.{field}", share, "must not be greater than 100%"))
    shares = [
        str(update.get(field, 0)).removesuffix("%") for field in ("maxUnavailable", "maxSurge")
    ]
    if not errors and all(share.strip("0") == "" for share in shares):
        text = "may not be 0 when `maxSurge` is 0"
        errors.append(invalid(f"{path}.maxUnavailable", update.get("maxUnavailable", 0), text))
    return errors


_POD_COLUMNS: Final = [
    column("Containers", "Names of each container in the template.", wide=True),
    column("Images", "Images referenced by each container in the template.", wide=True),
    column("Selector", "Label selector of the pods.", wide=True),
]
DEPLOYMENT_COLUMNS: Final = [
    NAME,
    column("Ready", "Number of ready and of desired pods."),
    column("Up-to-date", "Number of pods with the current template.", type="integer"),
    column("Available", "Number of available pods.", type="integer"),
    AGE,
    *_POD_COLUMNS,
]
REPLICA_SET_COLUMNS: Final = [
    NAME,
    column("Desired", "Number of desired pods.", type="integer"),
    column("Current", "Number of existing pods.", type="integer"),
    column("Ready", "Number of ready pods.", type="integer"),
    AGE,
    *_POD_COLUMNS,
]


def deployment_cells(doc: Document, now: datetime) -> list[Any]:
    spec, status = doc.get("spec") or {}, doc.get("status") or {}
    return [
        name_of(doc),
        f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}",
        status.get("updatedReplicas", 0),
        status.get("availableReplicas", 0),
        age(doc, now),
        *_pod_cells(spec),
    ]


def replica_set_cells(doc: Document, now: datetime) -> list[Any]:
    spec, status = doc.get("spec") or {}, doc.get("status") or {}
    return [
        name_of(doc),
        spec.get("replicas", 0),
        status.get("replicas", 0),
        status.get("readyReplicas", 0),
        age(doc, now),
        *_pod_cells(spec),
    ]


def _pod_cells(spec: Mapping[str, Any]) -> list[str]:
    containers = spec.get("template", {}).get("spec", {}).get("containers", ())
    return [
        ",".join(container.get("name", "") for container in containers),
        ",".join(container.get("image", "") for container in containers),
        selector_text(spec.get("selector", {})),
    ]
