"""Validation of containers and init containers."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from onejob.api.kinds.pod.environment import validate_environment, validate_environment_sources
from onejob.api.kinds.pod.probes import validate_lifecycle, validate_probes
from onejob.api.kinds.pod.resources import validate_resources
from onejob.api.kinds.pod.restart_rules import validate_restart_policy
from onejob.api.kinds.pod.security import validate_container_security
from onejob.api.kinds.pod.volumes import PULL_POLICIES, descending_path_errors
from onejob.wire.field_errors import (
    FieldError,
    duplicate,
    field_not_found,
    forbidden,
    invalid,
    not_supported,
    required,
)
from onejob.wire.names import label_errors, port_name_errors

_MESSAGE_POLICIES: Final = ["File", "FallbackToLogsOnError"]
_RESIZE_POLICIES: Final = ["NotRequired", "RestartContainer"]
_RECURSIONS: Final = ["Disabled", "Enabled", "IfPossible"]
_PROTOCOLS: Final = ["SCTP", "TCP", "UDP"]
_PROPAGATIONS: Final = ["Bidirectional", "HostToContainer", "None"]

#: Fields that only long-running containers may have.
_NOT_FOR_INIT: Final = ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe")


def validate_containers(
    containers: Sequence[Mapping[str, Any]],
    volume_names: set[Any],
    spec: Mapping[str, Any],
    path: str,
) -> list[FieldError]:
    """Validate containers. `spec` is the spec of the Pod."""
    if not containers:
        return [required(path)]
    errors: list[FieldError] = []
    names: set[str] = set()
    for i, container in enumerate(containers):
        place = f"{path}[{i}]"
        errors += validate_container(container, volume_names, spec, place)
        name = container.get("name", "")
        if name in names:
            errors.append(duplicate(f"{place}.name", name))
        elif name:
            names.add(name)
        errors += validate_lifecycle(container, place)
        errors += validate_probes(container, place)
        errors += validate_restart_policy(container, place)
    return errors + _validate_host_ports(containers, path)


def validate_init_containers(
    spec: Mapping[str, Any], volume_names: set[Any], path: str
) -> list[FieldError]:
    errors: list[FieldError] = []
    names = {container.get("name") for container in spec.get("containers", ())}
    for i, container in enumerate(spec["initContainers"]):
        place = f"{path}[{i}]"
        errors += validate_container(container, volume_names, spec, place)
        name = container.get("name", "")
        if name and name in names:
            errors.append(duplicate(f"{place}.name", name))
        names.add(name)
        if container.get("restartPolicy") == "Always":
            errors += validate_lifecycle(container, place)
            errors += validate_probes(container, place)
        else:
            errors += [
                forbidden(
                    f"{place}.{field}",
                    "may not be set for init containers without restartPolicy=Always",
                )
                for field in _NOT_FOR_INIT
                if field in container
            ]
            errors += [
                invalid(
                    f"{place}.resizePolicy[{number}].restartPolicy",
                    "RestartContainer",
                    "must not be set to 'RestartContainer' for non-sidecar initContainers",
                )
                for number, policy in enumerate(container.get("resizePolicy") or ())
                if policy.get("restartPolicy") == "RestartContainer"
            ]
        errors += validate_restart_policy(container, place)
    return errors


def validate_container(
    container: Mapping[str, Any], volume_names: set[Any], spec: Mapping[str, Any], path: str
) -> list[FieldError]:
    errors: list[FieldError] = []
    name, image = container.get("name", ""), container.get("image", "")
    if not name:
        errors.append(required(f"{path}.name"))
    else:
        errors += [invalid(f"{path}.name", name, text) for text in label_errors(name)]
    if not image:
        errors.append(required(f"{path}.image"))
    elif image != image.strip():
        errors.append(
            invalid(f"{path}.image", image, "must not have leading or trailing whitespace")
        )
    errors += _one_of(container, "terminationMessagePolicy", _MESSAGE_POLICIES, path)
    if "ports" in container:
        errors += _validate_ports(container["ports"], f"{path}.ports")
    if "env" in container:
        errors += validate_environment(container["env"], f"{path}.env")
    if "envFrom" in container:
        errors += validate_environment_sources(container["envFrom"], f"{path}.envFrom")
    if "volumeMounts" in container:
        errors += _validate_mounts(container, volume_names, f"{path}.volumeMounts")
    errors += _one_of(container, "imagePullPolicy", PULL_POLICIES, path)
    if container.get("resources"):
        errors += validate_resources(container["resources"], f"{path}.resources")
    if "resizePolicy" in container:
        errors += _validate_resizing(container["resizePolicy"], spec, f"{path}.resizePolicy")
    if container.get("securityContext"):
        errors += validate_container_security(
            container["securityContext"],
            f"{path}.securityContext",
            host_users=spec.get("hostUsers", True),
        )
    return errors


def _one_of(
    container: Mapping[str, Any], field: str, supported: list[str], path: str
) -> list[FieldError]:
    """Return an error unless a required field has a supported value."""
    value = container.get(field, "")
    if value in supported:
        return []
    if not value:
        return [required(f"{path}.{field}")]
    return [not_supported(f"{path}.{field}", value, supported)]


def _validate_resizing(
    policies: Sequence[Mapping[str, Any]], spec: Mapping[str, Any], path: str
) -> list[FieldError]:
    errors: list[FieldError] = []
    seen = set()
    for i, policy in enumerate(policies):
        name, restarts = policy.get("resourceName", ""), policy.get("restartPolicy", "")
        if name in seen:
            errors.append(duplicate(f"{path}[{i}]", name))
        seen.add(name)
        # As upstream, the path names the list, not the entry.
        for value, supported in ((name, ["cpu", "memory"]), (restarts, _RESIZE_POLICIES)):
            if value not in supported:
                errors.append(not_supported(path, value, supported) if value else required(path))
        if spec.get("restartPolicy") == "Never" and restarts != "NotRequired":
            why = "must be 'NotRequired' when pod `restartPolicy` is 'Never'"
            errors.append(invalid(path, restarts, why))
    return errors


def _validate_ports(ports: Sequence[Mapping[str, Any]], path: str) -> list[FieldError]:
    errors = []
    names = set()
    for i, port in enumerate(ports):
        place = f"{path}[{i}]"
        if name := port.get("name"):
            texts = port_name_errors(name)
            if texts:
                errors += [invalid(f"{place}.name", name, text) for text in texts]
            elif name in names:
                errors.append(duplicate(f"{place}.name", name))
            names.add(name)
        number, host_port = port.get("containerPort", 0), port.get("hostPort", 0)
        if number == 0:
            errors.append(required(f"{place}.containerPort"))
        else:
            errors += port_errors(number, f"{place}.containerPort")
        if host_port:
            errors += port_errors(host_port, f"{place}.hostPort")
        errors += _one_of(port, "protocol", _PROTOCOLS, place)
    return errors


def port_errors(number: int, path: str) -> list[FieldError]:
    if 1 <= number <= 65535:
        return []
    return [invalid(path, number, "must be between 1 and 65535, inclusive")]


def _validate_host_ports(containers: Sequence[Mapping[str, Any]], path: str) -> list[FieldError]:
    errors = []
    taken = set()
    for i, container in enumerate(containers):
        for j, port in enumerate(container.get("ports", ())):
            if not port.get("hostPort"):
                continue
            slot = f"{port.get('protocol', 'TCP')}/{port.get('hostIP', '')}/{port['hostPort']}"
            if slot in taken:
                errors.append(duplicate(f"{path}[{i}].ports[{j}].hostPort", slot))
            taken.add(slot)
    return errors


def _validate_mounts(
    container: Mapping[str, Any], volume_names: set[Any], path: str
) -> list[FieldError]:
    errors = []
    targets = set()
    for i, mount in enumerate(container["volumeMounts"]):
        place = f"{path}[{i}]"
        name, target = mount.get("name", ""), mount.get("mountPath", "")
        if not name:
            errors.append(required(f"{place}.name"))
        elif name not in volume_names:
            errors.append(field_not_found(f"{place}.name", name))
        if not target:
            errors.append(required(f"{place}.mountPath"))
        elif target in targets:
            errors.append(invalid(f"{place}.mountPath", target, "must be unique"))
        targets.add(target)
        # As upstream, the paths of the following errors name the list, not the entry.
        if mount.get("subPath"):
            errors += descending_path_errors(mount["subPath"], f"{path}.subPath")
        if mount.get("subPathExpr"):
            if mount.get("subPath"):
                why = "subPathExpr and subPath are mutually exclusive"
                errors.append(invalid(f"{place}.subPathExpr", mount["subPathExpr"], why))
            errors += descending_path_errors(mount["subPathExpr"], f"{path}.subPathExpr")
        propagation = mount.get("mountPropagation", "None")
        if propagation not in _PROPAGATIONS:
            errors.append(not_supported(f"{path}.mountPropagation", propagation, _PROPAGATIONS))
        privileged = container.get("securityContext", {}).get("privileged", False)
        if propagation == "Bidirectional" and not privileged:
            why = "Bidirectional mount propagation is available only to privileged containers"
            errors.append(forbidden(f"{path}.mountPropagation", why))
        errors += _recursion_errors(mount, f"{path}.recursiveReadOnly")
    return errors


def _recursion_errors(mount: Mapping[str, Any], path: str) -> list[FieldError]:
    recursive = mount.get("recursiveReadOnly", "Disabled")
    if recursive not in _RECURSIONS:
        return [not_supported(path, recursive, _RECURSIONS)]
    errors = []
    if recursive != "Disabled" and not mount.get("readOnly"):
        errors.append(forbidden(path, "may only be specified when readOnly is true"))
    if recursive != "Disabled" and mount.get("mountPropagation", "None") != "None":
        why = "may only be specified when mountPropagation is None or not specified"
        errors.append(forbidden(path, why))
    return errors
