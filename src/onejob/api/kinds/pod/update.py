"""Validation of Pod updates.

Few fields of a spec are mutable, and terminated containers must not become running again.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from onejob.api.kinds.pod.restart_rules import may_run_again
from onejob.api.kinds.sameness import same_meaning
from onejob.api.strategy import Document
from onejob.wire.field_errors import FieldError, forbidden, invalid

_REFUSAL: Final = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"
    "`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)

#: Fields with their own update rules, or freely mutable.
_JUDGED: Final = (
    "activeDeadlineSeconds",
    "tolerations",
    "schedulingGates",
    "ttlSecondsAfterFinished",
)


def validate_pod_change(new: Mapping[str, Any], old: Mapping[str, Any]) -> list[FieldError]:
    for field in ("containers", "initContainers"):
        if len(new.get(field, ())) != len(old.get(field, ())):
            return [forbidden(f"spec.{field}", "pod updates may not add or remove containers")]
    errors = _validate_deadline(new.get("activeDeadlineSeconds"), old.get("activeDeadlineSeconds"))
    errors += _validate_tolerations(new.get("tolerations", ()), old.get("tolerations", ()))
    errors += _validate_gates(new.get("schedulingGates", ()), old.get("schedulingGates", ()))
    left_new, left_old = _without_judged(new, old), _without_judged(old, old)
    if not same_meaning(left_new, left_old):
        differences = "\n".join(_changed_paths(left_new, left_old, "spec"))
        errors.append(forbidden("spec", f"{_REFUSAL}\n{differences}\n"))
    return errors


def _validate_deadline(new: int | None, old: int | None) -> list[FieldError]:
    path = "spec.activeDeadlineSeconds"
    if old is None or new == old:
        return []
    if new is None:
        return [invalid(path, new, "must not update from a positive integer to nil value")]
    if new > old:
        return [invalid(path, new, "must be less than or equal to previous value")]
    return []


def _validate_tolerations(
    new: Sequence[Mapping[str, Any]], old: Sequence[Mapping[str, Any]]
) -> list[FieldError]:
    kept = [_without_seconds(toleration) for toleration in new]
    if all(_without_seconds(toleration) in kept for toleration in old):
        return []
    return [
        forbidden(
            "spec.tolerations",
            "existing toleration can not be modified except its tolerationSeconds",
        )
    ]


def _without_seconds(toleration: Mapping[str, Any]) -> dict[str, Any]:
    return {field: v for field, v in toleration.items() if field != "tolerationSeconds" and v}


def _validate_gates(
    new: Sequence[Mapping[str, Any]], old: Sequence[Mapping[str, Any]]
) -> list[FieldError]:
    known = {gate.get("name") for gate in old}
    return [
        forbidden(
            f"spec.schedulingGates[{i}]",
            f"only deletion is allowed, but found new scheduling gate '{gate.get('name', '')}'",
        )
        for i, gate in enumerate(new)
        if gate.get("name") not in known
    ]


def _without_judged(spec: Mapping[str, Any], old: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spec without its mutable parts; the result must not differ from the stored
    spec."""
    left = {field: value for field, value in spec.items() if field not in _JUDGED}
    for field in ("containers", "initContainers"):
        left[field] = [{**container, "image": ""} for container in spec.get(field, ())]
    if old.get("terminationGracePeriodSeconds", 0) < 0 and (
        spec.get("terminationGracePeriodSeconds") == 1
    ):
        left["terminationGracePeriodSeconds"] = old["terminationGracePeriodSeconds"]
    if old.get("schedulingGates"):
        _free_gated_placement(left, spec, old)
    return left


def _free_gated_placement(
    left: dict[str, Any], spec: Mapping[str, Any], old: Mapping[str, Any]
) -> None:
    """Permit placement changes while the Pod has a scheduling gate.

    The changes may only narrow down where the Pod can run.
    """
    selector, old_selector = spec.get("nodeSelector", {}), old.get("nodeSelector", {})
    if old_selector.items() <= selector.items():
        left["nodeSelector"] = old_selector
    if "nodeAffinity" not in old.get("affinity", {}) and "affinity" in spec:
        left["affinity"] = {
            kind: value for kind, value in spec["affinity"].items() if kind != "nodeAffinity"
        }


def _changed_paths(new: Any, old: Any, path: str) -> Iterator[str]:
    """Yield the paths of the fields in which two specs differ."""
    if same_meaning(new, old):
        return
    if isinstance(new, dict) and isinstance(old, dict):
        for field in sorted(new.keys() | old.keys()):
            yield from _changed_paths(new.get(field), old.get(field), f"{path}.{field}")
    elif isinstance(new, list) and isinstance(old, list) and len(new) == len(old):
        for i, (mine, theirs) in enumerate(zip(new, old, strict=True)):
            yield from _changed_paths(mine, theirs, f"{path}[{i}]")
    else:
        yield f"  {path}: {old!r} -> {new!r}"


#: Container lists of the spec and their status lists.
_STATUSES: Final = (
    ("containers", "containerStatuses"),
    ("initContainers", "initContainerStatuses"),
)


def validate_pod_status_change(new: Document, old: Document) -> list[FieldError]:
    before, after = old.get("status", {}), new.get("status", {})
    errors: list[FieldError] = []
    for containers, statuses in _STATUSES:
        known = before.get(statuses)
        if known is not None and known is not after.get(statuses):
            errors += _restarted_containers(after, before, old, containers, statuses)
    return errors


def _restarted_containers(
    after: Document, before: Document, old: Document, containers: str, statuses: str
) -> Iterator[FieldError]:
    """Yield errors for containers that ended for good and would be running again."""
    ended = {
        status.get("name"): terminated
        for status in before[statuses]
        if (terminated := status.get("state", {}).get("terminated")) is not None
    }
    if not ended:
        return
    spec: Mapping[str, Any] = old.get("spec", {})
    if spec.get("restartPolicy") == "Always":
        return
    by_name = {container.get("name"): container for container in spec.get(containers, ())}
    for i, status in enumerate(after.get(statuses, ())):
        name = status.get("name")
        if name not in ended or "terminated" in status.get("state", {}):
            continue
        container = by_name.get(name, {})
        if not may_run_again(spec, container, ended[name].get("exitCode", 0)):
            yield forbidden(
                f"status.{statuses}[{i}].state",
                "may not be transitioned to non-terminated state",
            )
