"""Validation of environment variables and their sources."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from onejob.wire.field_errors import FieldError, invalid, not_supported, required
from onejob.wire.names import config_key_errors, env_name_errors, qualified_name_errors

_SOURCES: Final = (
    "fieldRef",
    "resourceFieldRef",
    "configMapKeyRef",
    "secretKeyRef",
    "fileKeyRef",
)

_ENV_FIELDS: Final = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)
_VOLUME_FIELDS: Final = (
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
)
#: All existing fields, regardless of where they may be used.
_KNOWN_FIELDS: Final = frozenset(_ENV_FIELDS + _VOLUME_FIELDS)

_RESOURCES: Final = tuple(
    f"{side}.{name}"
    for side in ("limits", "requests")
    for name in ("cpu", "ephemeral-storage", "memory")
)

_subscript: Final = re.compile(r"(metadata\.(?:labels|annotations))\['(.*)'\]").fullmatch


def validate_environment(variables: Sequence[Mapping[str, Any]], path: str) -> list[FieldError]:
    errors = []
    for i, variable in enumerate(variables):
        place = f"{path}[{i}]"
        name = variable.get("name", "")
        if not name:
            errors.append(required(f"{place}.name"))
        else:
            errors += [invalid(f"{place}.name", name, text) for text in env_name_errors(name)]
        if "valueFrom" in variable:
            errors += _validate_value_from(variable, f"{place}.valueFrom")
    return errors


def validate_environment_sources(
    sources: Sequence[Mapping[str, Any]], path: str
) -> list[FieldError]:
    errors = []
    for i, source in enumerate(sources):
        place = f"{path}[{i}]"
        if prefix := source.get("prefix"):
            errors += [invalid(f"{place}.prefix", prefix, text) for text in env_name_errors(prefix)]
        given = [field for field in ("configMapRef", "secretRef") if field in source]
        for field in given:
            if not source[field].get("name"):
                errors.append(required(f"{place}.{field}.name"))
        if len(given) > 1:
            errors.append(
                invalid(place, "", "may not have more than one field specified at a time")
            )
        elif not given:
            errors.append(invalid(place, "", "must specify one of: `configMapRef` or `secretRef`"))
    return errors


def _validate_value_from(variable: Mapping[str, Any], path: str) -> list[FieldError]:
    source = variable["valueFrom"]
    given = [field for field in _SOURCES if field in source]
    errors: list[FieldError] = []
    if "fieldRef" in source:
        errors += validate_field_ref(source["fieldRef"], f"{path}.fieldRef", in_volume=False)
    if "resourceFieldRef" in source:
        errors += validate_resource_ref(
            source["resourceFieldRef"], f"{path}.resourceFieldRef", in_volume=False
        )
    for field in ("configMapKeyRef", "secretKeyRef"):
        if field in source:
            errors += _validate_key_ref(source[field], f"{path}.{field}")
    if "fileKeyRef" in source:
        errors += [
            required(f"{path}.fileKeyRef.{field}")
            for field in ("key", "volumeName", "path")
            if not source["fileKeyRef"].get(field)
        ]
    if variable.get("value"):
        if given:
            errors.append(invalid(path, "", "may not be specified when `value` is not empty"))
    elif len(given) > 1:
        errors.append(invalid(path, "", "may not have more than one field specified at a time"))
    elif not given:
        errors.append(
            invalid(
                path,
                "",
                "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, "
                "`secretKeyRef` or `fileKeyRef`",
            )
        )
    return errors


def validate_field_ref(
    reference: Mapping[str, Any], path: str, *, in_volume: bool
) -> list[FieldError]:
    if not reference.get("apiVersion"):
        return [required(f"{path}.apiVersion")]
    field = reference.get("fieldPath", "")
    if not field:
        return [required(f"{path}.fieldPath")]
    place = f"{path}.fieldPath"
    subscripted = _subscript(field)
    if subscripted:
        key = subscripted[2]
        checked = key.lower() if subscripted[1] == "metadata.annotations" else key
        return [invalid(place, key, text) for text in qualified_name_errors(checked)]
    if field not in _KNOWN_FIELDS:
        return [
            invalid(place, field, f"error converting fieldPath: field label not supported: {field}")
        ]
    supported = _VOLUME_FIELDS if in_volume else _ENV_FIELDS
    return [] if field in supported else [not_supported(place, field, list(supported))]


def validate_resource_ref(
    reference: Mapping[str, Any], path: str, *, in_volume: bool
) -> list[FieldError]:
    if in_volume and not reference.get("containerName"):
        return [required(f"{path}.containerName")]
    resource = reference.get("resource", "")
    if not resource:
        return [required(f"{path}.resource")]
    if resource in _RESOURCES or resource.startswith(("limits.hugepages-", "requests.hugepages-")):
        return []
    return [not_supported(f"{path}.resource", resource, list(_RESOURCES))]


def _validate_key_ref(reference: Mapping[str, Any], path: str) -> list[FieldError]:
    errors = []
    if not reference.get("name"):
        errors.append(required(f"{path}.name"))
    key = reference.get("key", "")
    if not key:
        errors.append(required(f"{path}.key"))
    else:
        errors += [invalid(f"{path}.key", key, text) for text in config_key_errors(key)]
    return errors
