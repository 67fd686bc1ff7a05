"""Validation of security contexts of Pods and containers."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from onejob.api.kinds.pod.volumes import descending_path_errors
from onejob.wire.field_errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    too_long,
)

_MAX_ID: Final = 2**32 - 1
_PROFILE_TYPES: Final = ["Localhost", "RuntimeDefault", "Unconfined"]
_MAX_PROFILE_LENGTH: Final = 4095
_PROC_MOUNTS: Final = ["Default", "Unmasked"]
#: Enumerations of a Pod's security context, in upstream's order of validation.
_GROUPS_POLICIES: Final = ["Merge", "Strict"]
_SELINUX_POLICIES: Final = ["MountOption", "Recursive"]
_FS_GROUP_POLICIES: Final = ["Always", "OnRootMismatch"]

#: Fields of upstream's internal type, in its order; for fields that are objects, their fields and
#: zero values.
_INTERNAL: Final[Mapping[str, Mapping[str, Any]]] = {
    "capabilities": {"add": None, "drop": None},
    "privileged": {},
    "seLinuxOptions": dict.fromkeys(("user", "role", "type", "level"), ""),
    "windowsOptions": dict.fromkeys(
        ("gmsaCredentialSpecName", "gmsaCredentialSpec", "runAsUserName", "hostProcess")
    ),
    "runAsUser": {},
    "runAsGroup": {},
    "runAsNonRoot": {},
    "readOnlyRootFilesystem": {},
    "allowPrivilegeEscalation": {},
    "procMount": {},
    "seccompProfile": {"type": "", "localhostProfile": None},
    "appArmorProfile": {"type": "", "localhostProfile": None},
}

_MAX_SYSCTL_LENGTH: Final = 253
_SYSCTL_SEGMENT: Final = "[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_SYSCTL_FORMAT: Final = rf"^({_SYSCTL_SEGMENT}[\./])*{_SYSCTL_SEGMENT}$"
_SYSCTL: Final = re.compile(_SYSCTL_FORMAT.rstrip("$") + r"\Z", re.ASCII)
#: Sysctls of the IPC namespace, which `hostIPC` shares with the host, and prefixes of them.
_IPC_SYSCTLS: Final = frozenset({
    "kernel.sem", "kernel.shmall", "kernel.shmmax", "kernel.shmmni", "kernel.shm_rmid_forced",
    "kernel.shm", "kernel.msgmax", "kernel.msgmnb", "kernel.msgmni", "kernel.msg",
})  # fmt: skip
_SWAPPED: Final = str.maketrans("./", "/.")


def validate_pod_security(spec: Mapping[str, Any], path: str) -> list[FieldError]:
    """Validate the `securityContext` of a pod spec; `path` is the path of the context."""
    context = spec["securityContext"]
    errors = _id_errors(context, ("fsGroup", "runAsUser", "runAsGroup"), path)
    for i, group in enumerate(context.get("supplementalGroups", ())):
        errors += _id_error(f"{path}.supplementalGroups[{i}]", group)
    if "sysctls" in context:
        errors += _sysctl_errors(context["sysctls"], spec, f"{path}.sysctls")
    errors += _enumeration_errors(context, "fsGroupChangePolicy", _FS_GROUP_POLICIES, path)
    errors += _profile_errors(context, path)
    errors += _enumeration_errors(context, "supplementalGroupsPolicy", _GROUPS_POLICIES, path)
    return errors + _enumeration_errors(context, "seLinuxChangePolicy", _SELINUX_POLICIES, path)


def validate_container_security(
    context: Mapping[str, Any], path: str, *, host_users: bool
) -> list[FieldError]:
    errors = _id_errors(context, ("runAsUser", "runAsGroup"), path)
    errors += _enumeration_errors(context, "procMount", _PROC_MOUNTS, path)
    if host_users and context.get("procMount") == "Unmasked":
        why = "`hostUsers` must be false to use `Unmasked`"
        errors.append(invalid(f"{path}.procMount", "Unmasked", why))
    errors += _seccomp_errors(context.get("seccompProfile"), f"{path}.seccompProfile")
    if context.get("allowPrivilegeEscalation") is False:
        what = "cannot set `allowPrivilegeEscalation` to false and"
        if context.get("privileged"):
            errors.append(invalid(path, _internal(context), f"{what} `privileged` to true"))
        added = context.get("capabilities", {}).get("add", ())
        why = f"{what} `capabilities.Add` CAP_SYS_ADMIN"
        errors += [
            invalid(path, _internal(context), why) for name in added if name == "CAP_SYS_ADMIN"
        ]
    return errors + _app_armor_errors(context.get("appArmorProfile"), f"{path}.appArmorProfile")


def _internal(context: Mapping[str, Any]) -> dict[str, Any]:
    """Return a container's context as upstream's messages print it.

    The result has all fields of the internal type, under their Go names.
    """
    return {
        _go_name(field): None if context.get(field) is None else _as_internal(context[field], names)
        for field, names in _INTERNAL.items()
    }


def _as_internal(value: Any, fields: Mapping[str, Any]) -> Any:
    if not fields:
        return value
    return {_go_name(field): value.get(field, default) for field, default in fields.items()}


def _go_name(field: str) -> str:
    for prefix, shown in (("seLinux", "SELinux"), ("gmsa", "GMSA")):
        if field.startswith(prefix):
            return shown + field.removeprefix(prefix)
    return field[0].upper() + field[1:]


def _profile_errors(context: Mapping[str, Any], path: str) -> list[FieldError]:
    return [
        *_seccomp_errors(context.get("seccompProfile"), f"{path}.seccompProfile"),
        *_app_armor_errors(context.get("appArmorProfile"), f"{path}.appArmorProfile"),
    ]


def _seccomp_errors(profile: Mapping[str, Any] | None, path: str) -> list[FieldError]:
    if profile is None:
        return []
    kind, name = profile.get("type", ""), profile.get("localhostProfile")
    errors = _type_errors(kind, "type is required when seccompProfile is set", path)
    place = f"{path}.localhostProfile"
    if kind == "Localhost":
        if name is None:
            errors.append(required(place, "must be set when seccomp type is Localhost"))
        else:
            errors += descending_path_errors(name, place)
    elif name is not None:
        value = _as_internal(profile, _INTERNAL["seccompProfile"])
        errors.append(invalid(place, value, "can only be set when seccomp type is Localhost"))
    return errors


def _app_armor_errors(profile: Mapping[str, Any] | None, path: str) -> list[FieldError]:
    if profile is None:
        return []
    kind, name = profile.get("type", ""), profile.get("localhostProfile")
    place = f"{path}.localhostProfile"
    if kind == "Localhost":
        errors: list[FieldError] = []
        if name is not None and name != name.strip():
            errors.append(invalid(place, name, "must not be padded with whitespace"))
        elif not name:
            errors.append(required(place, "must be set when AppArmor type is Localhost"))
        if name is not None and len(name.encode()) > _MAX_PROFILE_LENGTH:
            errors.append(too_long(place, _MAX_PROFILE_LENGTH))
        return errors
    if kind in _PROFILE_TYPES:
        why = "can only be set when AppArmor type is Localhost"
        return [] if name is None else [invalid(place, name, why)]
    return _type_errors(kind, "type is required when appArmorProfile is set", path)


def _type_errors(kind: str, missing: str, path: str) -> list[FieldError]:
    if kind in _PROFILE_TYPES:
        return []
    place = f"{path}.type"
    return [not_supported(place, kind, _PROFILE_TYPES) if kind else required(place, missing)]


def _sysctl_errors(
    sysctls: Sequence[Mapping[str, Any]], spec: Mapping[str, Any], path: str
) -> list[FieldError]:
    errors = []
    seen = set()
    for i, sysctl in enumerate(sysctls):
        name, place = sysctl.get("name", ""), f"{path}[{i}].name"
        if not name:
            errors.append(required(place))
        elif len(name) > _MAX_SYSCTL_LENGTH or not _SYSCTL.match(name):
            limit = _MAX_SYSCTL_LENGTH
            why = f"must have at most {limit} characters and match regex {_SYSCTL_FORMAT}"
            errors.append(invalid(place, name, why))
        elif name in seen:
            errors.append(duplicate(place, name))
        if field := _shared_by(name, spec):
            errors.append(invalid(place, name, f"may not be specified when '{field}' is true"))
        seen.add(name)
    return errors


def _shared_by(sysctl: str, spec: Mapping[str, Any]) -> str:
    """Return the field by which a Pod shares the sysctl's namespace with the host; "" if none."""
    separator = re.search(r"[./]", sysctl)
    if separator is not None and separator[0] == "/":
        sysctl = sysctl.translate(_SWAPPED)
    sysctl = sysctl.partition("*")[0]
    if spec.get("hostNetwork") and sysctl.startswith("net."):
        return "hostNetwork"
    is_ipc = sysctl in _IPC_SYSCTLS or sysctl.startswith("fs.mqueue.")
    return "hostIPC" if spec.get("hostIPC") and is_ipc else ""


def _enumeration_errors(
    context: Mapping[str, Any], field: str, supported: list[str], path: str
) -> list[FieldError]:
    value = context.get(field)
    if value is None or value in supported:
        return []
    return [not_supported(f"{path}.{field}", value, supported)]


def _id_errors(context: Mapping[str, Any], fields: Sequence[str], path: str) -> list[FieldError]:
    return [
        error for field in fields for error in _id_error(f"{path}.{field}", context.get(field, 0))
    ]


def _id_error(path: str, value: int) -> list[FieldError]:
    if 0 <= value <= _MAX_ID:
        return []
    return [invalid(path, value, f"must be between 0 and {_MAX_ID}, inclusive")]


def validate_linux(spec: Mapping[str, Any], path: str) -> list[FieldError]:
    """Reject Windows options in a Pod whose `os` is linux."""
    contexts = [(f"{path}.securityContext", spec.get("securityContext", {}))]
    for field in ("initContainers", "containers"):
        contexts += [
            (f"{path}.{field}[{i}].securityContext", container.get("securityContext", {}))
            for i, container in enumerate(spec.get(field, ()))
        ]
    return [
        forbidden(f"{place}.windowsOptions", "windows options cannot be set for a linux pod")
        for place, context in contexts
        if "windowsOptions" in context
    ]
