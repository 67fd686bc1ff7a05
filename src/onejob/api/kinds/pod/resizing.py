"""Rules of the subresource `resize`: CPU and memory of a Pod change, everything else stays.

Upstream's strategy drops all other changes of the request silently, and its validation (the order
and the messages here are those of ValidatePodResize) refuses what remains and must not change.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from onejob.api.kinds.base import keep_section, keep_status
from onejob.api.kinds.pod.resources import quality_of_service
from onejob.api.kinds.sameness import same_meaning
from onejob.api.strategy import Document
from onejob.wire.field_errors import FieldError, forbidden, invalid

_LISTS: Final = ("containers", "initContainers")
_RESIZABLE: Final = ("cpu", "memory")
_AMOUNTS: Final = ("requests", "limits")
#: Metadata that this endpoint does not change, beyond what no client may change.
_KEPT_METADATA: Final = ("labels", "annotations", "finalizers", "ownerReferences")


def keep_all_but_resources(new: Document, old: Document) -> None:
    """Undo all changes but those of resources and resize policies, in place.

    Added, removed and renamed containers are kept, for validation to refuse.
    """
    spec: dict[str, Any] = new.get("spec") or {}
    stored: Mapping[str, Any] = old["spec"]
    if any(len(spec.get(each) or ()) != len(stored.get(each) or ()) for each in _LISTS):
        return
    kept = dict(stored)
    for each in _LISTS:
        if each in stored:
            kept[each] = _resized(spec[each], stored[each])
    if spec.get("resources") is not None:
        kept["resources"] = spec["resources"]
    new["spec"] = kept
    for name in new.keys() - {"apiVersion", "kind", "metadata", "spec", "status"}:
        del new[name]
    keep_status(new, old)
    for name in _KEPT_METADATA:
        keep_section(new["metadata"], old["metadata"], name)


def _resized(
    new: Sequence[Mapping[str, Any]], old: Sequence[Mapping[str, Any]]
) -> Sequence[Mapping[str, Any]]:
    """Return the stored containers with the new resources; the new ones if a name differs."""
    if [each.get("name") for each in new] != [each.get("name") for each in old]:
        return new
    kept = []
    for mine, theirs in zip(new, old, strict=True):
        container = dict(theirs)
        for field in ("resources", "resizePolicy"):
            keep_section(container, dict(mine), field)
        kept.append(container)
    return kept


def validate_resize(new: Document, old: Document) -> list[FieldError]:
    """Return the errors of a resize beyond those of the new spec itself."""
    spec, stored = new["spec"], old["spec"]
    if (stored.get("os") or {}).get("name") == "windows":
        return [forbidden("", "windows pods cannot be resized")]
    errors: list[FieldError] = []
    quality = (old.get("status") or {}).get("qosClass") or quality_of_service(stored)
    if quality_of_service(spec) != quality:
        why = "Pod QOS Class may not change as a result of resizing"
        errors.append(invalid("spec", quality, why))
    if not _node_reports_resources(old):
        errors.append(forbidden("spec", "Pod running on node without support for resize"))
    errors += _pod_level(spec, stored)
    if moved := [*_moved_containers(spec, stored)]:
        return errors + moved
    for each in reversed(_LISTS):
        for i, container in enumerate(stored.get(each) or ()):
            own = f"spec.{each}[{i}].resources"
            errors += _removed(spec[each][i].get("resources"), container.get("resources"), own)
    for each in _LISTS:
        for i, container in enumerate(stored.get(each) or ()):
            errors += _only_resizable_changed(spec[each][i], container, each, i)
    if not errors and not same_meaning(_without_resources(spec), _without_resources(stored)):
        errors.append(forbidden("spec", "only cpu and memory resources are mutable"))
    return errors


def _node_reports_resources(pod: Document) -> bool:
    """Return whether the node of a running Pod reports resources, which it does if it resizes."""
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        if "running" in (status.get("state") or {}):
            return "resources" in status
    return True


def _pod_level(spec: Mapping[str, Any], stored: Mapping[str, Any]) -> Iterator[FieldError]:
    """Yield the errors of changes of the Pod's own resources."""
    new, old = spec.get("resources"), stored.get("resources")
    if not any(amounts for each in (new, old) for amounts in (each or {}).values()):
        return
    for field in _AMOUNTS:
        if ((old or {}).get(field) or {}).keys() - ((new or {}).get(field) or {}).keys():
            what = f"pod-level resource {field} cannot be removed"
            yield forbidden(f"spec.resources.{field}", what)
    if not same_meaning(_fixed_resources(new), _fixed_resources(old)):
        yield forbidden("spec", "only cpu and memory resources are mutable at pod-level")


def _moved_containers(spec: Mapping[str, Any], stored: Mapping[str, Any]) -> Iterator[FieldError]:
    for each in _LISTS:
        new, old = spec.get(each) or (), stored.get(each) or ()
        if len(new) != len(old):
            yield forbidden(f"spec.{each}", f"{each} may not be added or removed on resize")
            continue
        for i, (mine, theirs) in enumerate(zip(new, old, strict=True)):
            if mine.get("name") != theirs.get("name"):
                what = f"{each} may not be renamed or reordered on resize"
                yield forbidden(f"spec.{each}[{i}].name", what)


def _removed(
    new: Mapping[str, Any] | None, old: Mapping[str, Any] | None, path: str
) -> Iterator[FieldError]:
    for field in _AMOUNTS:
        if ((old or {}).get(field) or {}).keys() - ((new or {}).get(field) or {}).keys():
            yield forbidden(f"{path}.{field}", f"resource {field} cannot be removed")


def _only_resizable_changed(
    new: Mapping[str, Any], old: Mapping[str, Any], field: str, i: int
) -> Iterator[FieldError]:
    """Yield the errors of a container in which more than CPU and memory changed."""
    init = field == "initContainers"
    if not same_meaning(_fixed(new), _fixed(old)):
        if init:
            what = "only cpu and memory resources for init or sidecar containers are mutable"
            yield forbidden(f"spec.{field}[{i}]", what)
        else:
            yield forbidden("spec", "only cpu and memory resources are mutable")
    if init and old.get("restartPolicy") != "Always" and not same_meaning(new, old):
        for policy in new.get("resizePolicy") or ():
            if policy.get("restartPolicy") == "RestartContainer":
                what = (
                    "non-sidecar init containers with a resize policy of RestartContainer cannot "
                    "be resized"
                )
                yield forbidden(f"spec.{field}[{i}]", what)


def _fixed(container: Mapping[str, Any]) -> dict[str, Any]:
    """Return a container without its CPU and memory."""
    return {**container, "resources": _fixed_resources(container.get("resources"))}


def _fixed_resources(resources: Mapping[str, Any] | None) -> dict[str, Any]:
    kept = dict(resources or {})
    for field in _AMOUNTS:
        amounts = kept.get(field) or {}
        kept[field] = {name: amounts[name] for name in amounts if name not in _RESIZABLE}
    return kept


def _without_resources(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of a spec that have no rules of their own here."""
    return {name: value for name, value in spec.items() if name not in (*_LISTS, "resources")}
