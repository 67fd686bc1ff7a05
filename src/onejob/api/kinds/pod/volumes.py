"""Validation of volumes: exactly one, complete source each."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from onejob.api.kinds.pod.environment import validate_field_ref, validate_resource_ref
from onejob.wire.field_errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
)
from onejob.wire.names import config_key_errors, label_errors
from onejob.wire.quantity import parse_quantity

#: Sources in upstream's order of validation; the first one found is the volume's source.
_SOURCES: Final = (
    "emptyDir", "hostPath", "gitRepo", "gcePersistentDisk", "awsElasticBlockStore", "secret",
    "nfs", "iscsi", "glusterfs", "flocker", "persistentVolumeClaim", "rbd", "cinder", "cephfs",
    "quobyte", "downwardAPI", "fc", "flexVolume", "configMap", "azureFile", "vsphereVolume",
    "photonPersistentDisk", "portworxVolume", "azureDisk", "storageos", "projected", "scaleIO",
    "csi", "ephemeral", "image",
)  # fmt: skip

#: Required fields by source.
_REQUIRED: Final[Mapping[str, tuple[str, ...]]] = {
    "secret": ("secretName",),
    "configMap": ("name",),
    "persistentVolumeClaim": ("claimName",),
    "hostPath": ("path",),
    "nfs": ("server", "path"),
    "csi": ("driver",),
    "ephemeral": ("volumeClaimTemplate",),
    "iscsi": ("targetPortal", "iqn"),
    "gitRepo": ("repository",),
}

_HOST_PATH_TYPES: Final = [
    "", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate",
    "Socket",
]  # fmt: skip

_PROJECTED: Final = (
    "secret",
    "downwardAPI",
    "configMap",
    "serviceAccountToken",
    "clusterTrustBundle",
    "podCertificate",
)
PULL_POLICIES: Final = ["Always", "IfNotPresent", "Never"]
_MIN_TOKEN_SECONDS: Final = 600


def validate_volumes(volumes: Sequence[Mapping[str, Any]], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    names = set()
    for i, volume in enumerate(volumes):
        place = f"{path}[{i}]"
        errors += _validate_source(volume, place)
        name = volume.get("name", "")
        if not name:
            errors.append(required(f"{place}.name"))
        else:
            errors += [invalid(f"{place}.name", name, text) for text in label_errors(name)]
        if name in names:
            errors.append(duplicate(f"{place}.name", name))
        names.add(name)
    return errors


def descending_path_errors(target: str, path: str) -> list[FieldError]:
    """Return errors unless the path is relative and stays below its base directory."""
    errors = []
    if target.startswith("/"):
        errors.append(invalid(path, target, "must be a relative path"))
    return errors + backstep_errors(target, path)


def validate_host_path(source: Mapping[str, Any], path: str) -> list[FieldError]:
    errors = backstep_errors(source.get("path", ""), f"{path}.path")
    kind = source.get("type", "")
    if kind not in _HOST_PATH_TYPES:
        errors.append(not_supported(f"{path}.type", kind, _HOST_PATH_TYPES))
    return errors


def backstep_errors(target: str, path: str) -> list[FieldError]:
    if ".." not in target.split("/"):
        return []
    return [invalid(path, target, "must not contain '..'")]


def _validate_source(volume: Mapping[str, Any], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    found = False
    for name in _SOURCES:
        source = volume.get(name)
        if source is None:
            continue
        place = f"{path}.{name}"
        if found:
            errors.append(forbidden(place, "may not specify more than 1 volume type"))
            continue
        found = True
        errors += [
            required(f"{place}.{field}")
            for field in _REQUIRED.get(name, ())
            if not source.get(field)
        ]
        errors += _validate_details(name, source, place)
    if not found:
        errors.append(required(path, "must specify a volume type"))
    return errors


def _validate_details(name: str, source: Mapping[str, Any], path: str) -> list[FieldError]:
    match name:
        case "emptyDir":
            limit = source.get("sizeLimit")
            if limit is not None and parse_quantity(limit).nanos < 0:
                return [
                    forbidden(
                        f"{path}.sizeLimit", "SizeLimit field must be a valid resource quantity"
                    )
                ]
            return []
        case "hostPath":
            return validate_host_path(source, path)
        case "ephemeral":
            # Imported with the first claim: most servers have none.
            from onejob.api.kinds.pod.claim_spec import claim_spec_errors

            template = source.get("volumeClaimTemplate")
            if not template:
                return []
            spec = template.get("spec") or {}
            return claim_spec_errors(spec, f"{path}.volumeClaimTemplate.spec")
        case "image":
            policy = source.get("pullPolicy", "")
            if policy in ("", *PULL_POLICIES):
                return []
            return [not_supported(f"{path}.pullPolicy", policy, PULL_POLICIES)]
        case "nfs":
            target = source.get("path", "")
            if target and not target.startswith("/"):
                return [invalid(f"{path}.path", target, "must be an absolute path")]
            return []
        case "secret" | "configMap":
            return _mode_errors(source, "defaultMode", path) + _validate_items(source, path)
        case "downwardAPI":
            return _mode_errors(source, "defaultMode", path) + _validate_downward(source, path)
        case "projected":
            return _mode_errors(source, "defaultMode", path) + _validate_projected(source, path)
        case _:
            return []


def _mode_errors(holder: Mapping[str, Any], field: str, path: str) -> list[FieldError]:
    mode = holder.get(field)
    if mode is None or 0 <= mode <= 0o777:
        return []
    return [
        invalid(
            f"{path}.{field}",
            mode,
            "must be a number between 0 and 0777 (octal), both inclusive",
        )
    ]


def _validate_items(source: Mapping[str, Any], path: str) -> list[FieldError]:
    errors = []
    for i, item in enumerate(source.get("items", ())):
        place = f"{path}.items[{i}]"
        key = item.get("key", "")
        if not key:
            errors.append(required(f"{place}.key"))
        else:
            errors += [invalid(f"{place}.key", key, text) for text in config_key_errors(key)]
        errors += _validate_file(item, place)
    return errors


def _validate_file(item: Mapping[str, Any], path: str) -> list[FieldError]:
    errors = []
    target = item.get("path", "")
    if not target:
        errors.append(required(f"{path}.path"))
    else:
        errors += descending_path_errors(target, f"{path}.path")
        if target.startswith("..") and not target.startswith("../"):
            errors.append(invalid(f"{path}.path", target, "must not start with '..'"))
    return errors + _mode_errors(item, "mode", path)


def _validate_downward(source: Mapping[str, Any], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for i, item in enumerate(source.get("items", ())):
        place = f"{path}.items[{i}]"
        errors += _validate_file(item, place)
        if "fieldRef" in item:
            errors += validate_field_ref(item["fieldRef"], f"{place}.fieldRef", in_volume=True)
            if "resourceFieldRef" in item:
                errors.append(
                    invalid(
                        place,
                        "resource",
                        "fieldRef and resourceFieldRef can not be specified simultaneously",
                    )
                )
        elif "resourceFieldRef" in item:
            errors += validate_resource_ref(
                item["resourceFieldRef"], f"{place}.resourceFieldRef", in_volume=True
            )
        else:
            errors.append(required(place, "one of fieldRef and resourceFieldRef is required"))
    return errors


def _validate_projected(source: Mapping[str, Any], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for i, projection in enumerate(source.get("sources", ())):
        place = f"{path}.sources[{i}]"
        given = [name for name in _PROJECTED if name in projection]
        if not given:
            errors.append(required(place, "must specify a volume source"))
        errors += [
            forbidden(f"{place}.{extra}", "may not specify more than 1 volume type per source")
            for extra in given[1:]
        ]
        for name in ("secret", "configMap"):
            if name in projection:
                if not projection[name].get("name"):
                    errors.append(required(f"{place}.{name}.name"))
                errors += _validate_items(projection[name], f"{place}.{name}")
        if "downwardAPI" in projection:
            errors += _validate_downward(projection["downwardAPI"], f"{place}.downwardAPI")
        if "serviceAccountToken" in projection:
            errors += _validate_token(
                projection["serviceAccountToken"], f"{place}.serviceAccountToken"
            )
    return errors


def _validate_token(token: Mapping[str, Any], path: str) -> list[FieldError]:
    errors = []
    seconds = token.get("expirationSeconds", _MIN_TOKEN_SECONDS)
    if seconds < _MIN_TOKEN_SECONDS:
        errors.append(
            invalid(
                f"{path}.expirationSeconds",
                seconds,
                "may not specify a duration less than 10 minutes",
            )
        )
    if seconds > 1 << 32:
        errors.append(
            invalid(
                f"{path}.expirationSeconds",
                seconds,
                "may not specify a duration larger than 2^32 seconds",
            )
        )
    return errors + _validate_file(token, path)
