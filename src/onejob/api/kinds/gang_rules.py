"""Validation of gang scheduling: PodGroups, Workloads, `scheduling` of Jobs, `schedulingGroup`."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from onejob.api.strategy import Document
from onejob.wire.field_errors import FieldError, forbidden, invalid, required, too_many
from onejob.wire.names import subdomain_errors

_FIXED: Final = "field is immutable"
_MAX_TEMPLATES: Final = 8
_MAX_CLAIMS: Final = 4


def check_pod_group(doc: Document) -> list[FieldError]:
    return _check_template(doc.get("spec", {}), "spec", needs_policy=True)


def check_workload(doc: Document) -> list[FieldError]:
    spec = doc.get("spec", {})
    templates: Sequence[Mapping[str, Any]] = spec.get("podGroupTemplates", ())
    errors: list[FieldError] = []
    if spec.get("compositePodGroupTemplates"):
        errors.append(
            forbidden("spec.compositePodGroupTemplates", "requires the feature CompositePodGroup")
        )
    if not templates:
        errors.append(required("spec.podGroupTemplates"))
    if len(templates) > _MAX_TEMPLATES:
        errors.append(too_many("spec.podGroupTemplates", len(templates), _MAX_TEMPLATES))
    for i, template in enumerate(templates):
        errors += _check_template(template, f"spec.podGroupTemplates[{i}]", needs_policy=True)
    return errors


def forbidden_group_changes(new: Document, old: Document) -> list[FieldError]:
    """Permit changes of `minCount` only, in a PodGroup or a Workload."""
    if _without_min_counts(new.get("spec", {})) == _without_min_counts(old.get("spec", {})):
        return []
    return [invalid("spec", None, f"{_FIXED} except for schedulingPolicy.gang.minCount")]


def check_job_scheduling(spec: Mapping[str, Any], path: str) -> list[FieldError]:
    """Return the errors in `scheduling` of a Job's spec, which is at `path`."""
    scheduling = spec.get("scheduling")
    if scheduling is None:
        return []
    path = f"{path}.scheduling"
    errors = _check_template(scheduling, path, needs_policy=False)
    policy = scheduling.get("schedulingPolicy") or {}
    count = (policy.get("gang") or {}).get("minCount")
    parallelism = spec.get("parallelism", 1)
    if count is not None and count > parallelism:
        errors.append(
            invalid(
                f"{path}.schedulingPolicy.gang.minCount",
                count,
                f"must not be greater than parallelism ({parallelism})",
            )
        )
    if "gang" not in policy and "all" in (scheduling.get("disruptionMode") or {}):
        errors.append(forbidden(f"{path}.disruptionMode.all", "requires the policy gang"))
    return errors


def check_job_scheduling_change(
    spec: Mapping[str, Any], old_spec: Mapping[str, Any]
) -> list[FieldError]:
    new, old = spec.get("scheduling"), old_spec.get("scheduling")
    if (new is None) is (old is None) and _without_min_counts(new) == _without_min_counts(old):
        return []
    detail = f"{_FIXED} except for schedulingPolicy.gang.minCount"
    return [invalid("spec.scheduling", new, detail)]


def check_scheduling_group(spec: Mapping[str, Any], path: str) -> list[FieldError]:
    """Return the errors in `schedulingGroup` of a Pod's spec, which is at `path`."""
    group = spec.get("schedulingGroup")
    if group is None:
        return []
    place = f"{path}.schedulingGroup.podGroupName"
    name = group.get("podGroupName")
    if name is None:
        return [required(place, "must name a PodGroup")]
    return [invalid(place, name, detail) for detail in subdomain_errors(name)]


def _check_template(
    template: Mapping[str, Any], path: str, *, needs_policy: bool
) -> list[FieldError]:
    errors: list[FieldError] = []
    policy = template.get("schedulingPolicy")
    place = f"{path}.schedulingPolicy"
    if policy is None:
        if needs_policy:
            errors.append(required(place))
    elif len(policy.keys() & {"basic", "gang"}) != 1:
        errors.append(invalid(place, policy, "must specify exactly one of: `basic`, `gang`"))
    elif "gang" in policy:
        errors += _check_min_count(policy["gang"], f"{place}.gang", needed=needs_policy)
    mode = template.get("disruptionMode")
    if mode is not None and len(mode.keys() & {"all", "single"}) != 1:
        detail = "must specify exactly one of: `all`, `single`"
        errors.append(invalid(f"{path}.disruptionMode", mode, detail))
    claims = template.get("resourceClaims") or ()
    if len(claims) > _MAX_CLAIMS:
        errors.append(too_many(f"{path}.resourceClaims", len(claims), _MAX_CLAIMS))
    return errors


def _check_min_count(gang: Mapping[str, Any], path: str, *, needed: bool) -> list[FieldError]:
    count = gang.get("minCount")
    if count is None:
        return [required(f"{path}.minCount")] if needed else []
    if count < 1:
        return [invalid(f"{path}.minCount", count, "must be greater than or equal to 1")]
    return []


def _without_min_counts(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_min_counts(item) for key, item in value.items() if key != "minCount"}
    if isinstance(value, list):
        return [_without_min_counts(item) for item in value]
    return value
