"""Rules of the subresource `ephemeralcontainers`: containers are added to a Pod, for debugging.

Upstream's strategy drops all other changes of the request silently.
"""

from collections.abc import Mapping
from typing import Any, Final

from onejob.api.kinds.base import keep_section, keep_status
from onejob.api.kinds.pod.containers import validate_container
from onejob.api.kinds.pod.defaults import default_container
from onejob.api.kinds.sameness import same_meaning
from onejob.api.strategy import Document
from onejob.wire.field_errors import FieldError, duplicate, field_not_found, forbidden

_FIELD: Final = "ephemeralContainers"
_PATH: Final = f"spec.{_FIELD}"
#: Fields that would make the container part of the workload.
_REFUSED: Final = (
    "lifecycle", "livenessProbe", "ports", "readinessProbe", "resizePolicy", "resources",
    "restartPolicy", "restartPolicyRules", "startupProbe",
)  # fmt: skip
#: Metadata that this endpoint does not change, beyond what no client may change.
_KEPT_METADATA: Final = ("labels", "annotations", "finalizers", "ownerReferences")


def keep_all_but_ephemeral(new: Document, old: Document) -> None:
    """Undo all changes but those of ephemeral containers, in place, and set their defaults."""
    wanted = (new.get("spec") or {}).get(_FIELD) or []
    kept = {**old["spec"], _FIELD: wanted}
    if not wanted:
        kept.pop(_FIELD)
    for container in wanted:
        # `resources` is a default of other containers, and refused in these.
        stated = container.get("resources")
        default_container(container, host_network=False)
        if not stated:
            container.pop("resources", None)
    new["spec"] = kept
    for name in new.keys() - {"apiVersion", "kind", "metadata", "spec", "status"}:
        del new[name]
    keep_status(new, old)
    for name in _KEPT_METADATA:
        keep_section(new["metadata"], old["metadata"], name)


def validate_ephemeral(new: Mapping[str, Any], old: Mapping[str, Any]) -> list[FieldError]:
    """Return the errors of the ephemeral containers of a Pod's spec."""
    errors: list[FieldError] = []
    volumes = {volume.get("name") for volume in new.get("volumes") or ()}
    others = {
        each.get("name")
        for field in ("containers", "initContainers")
        for each in new.get(field) or ()
    }
    names = set(others)
    for index, container in enumerate(new.get(_FIELD) or ()):
        place = f"{_PATH}[{index}]"
        errors += validate_container(container, volumes, new, place)
        name = container.get("name", "")
        if name and name in names:
            errors.append(duplicate(f"{place}.name", name))
        names.add(name)
        target = container.get("targetContainerName")
        if target and target not in others:
            errors.append(field_not_found(f"{place}.targetContainerName", target))
        text = "cannot be set for an Ephemeral Container"
        errors += [
            forbidden(f"{place}.{field}", text) for field in _REFUSED if container.get(field)
        ]
        errors += [
            forbidden(f"{place}.volumeMounts[{number}].{field}", text)
            for number, mount in enumerate(container.get("volumeMounts") or ())
            for field in ("subPath", "subPathExpr")
            if mount.get(field)
        ]
    return errors + _changed(new, old)


def _changed(new: Mapping[str, Any], old: Mapping[str, Any]) -> list[FieldError]:
    """Return the errors of existing containers that are missing or different."""
    found = {each.get("name"): each for each in new.get(_FIELD) or ()}
    errors: list[FieldError] = []
    for container in old.get(_FIELD) or ():
        name = container["name"]
        if name not in found:
            text = f'existing ephemeral containers "{name}" may not be removed\n'
            errors.append(forbidden(_PATH, text))
        elif not same_meaning(found[name], container):
            text = f'existing ephemeral containers "{name}" may not be changed\n'
            errors.append(forbidden(_PATH, text))
    return errors
