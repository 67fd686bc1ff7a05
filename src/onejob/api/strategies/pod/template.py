"""What a pod spec must look like, in a template as well as in a Pod."""

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any, Final

from onejob.api.strategies.pod.containers import validate_containers, validate_init_containers
from onejob.api.strategies.pod.placement import validate_affinity, validate_tolerations
from onejob.api.strategies.pod.resources import validate_pod_resources
from onejob.api.strategies.pod.volumes import validate_volumes
from onejob.wire.field_errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
)
from onejob.wire.labels import validate_annotations, validate_labels
from onejob.wire.names import label_errors, qualified_name_errors, subdomain_errors

_MAX_INT32: Final = 2**31 - 1
_MAX_ID: Final = 2**32 - 1

_RESTART_POLICIES: Final = ["Always", "OnFailure", "Never"]
_DNS_POLICIES: Final = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"]


def validate_pod_template(template: Mapping[str, Any], path: str) -> list[FieldError]:
    metadata = template.get("metadata", {})
    spec = template.get("spec", {})
    # Upstream leaves `.metadata` out of these two paths, and clients have come to see it so.
    errors = validate_labels(metadata.get("labels", {}), f"{path}.labels")
    errors += validate_annotations(metadata.get("annotations", {}), f"{path}.annotations")
    errors += validate_pod_spec(spec, f"{path}.spec")
    if spec.get("ephemeralContainers"):
        errors.append(
            forbidden(
                f"{path}.spec.ephemeralContainers",
                "ephemeral containers not allowed in pod template",
            )
        )
    return errors


def validate_pod_ttl(spec: Mapping[str, Any], path: str) -> list[FieldError]:
    """Validate `ttlSecondsAfterFinished` of a Pod, or of a template that is not a Job's. A Pod that
    is always restarted never finishes."""
    seconds = spec.get("ttlSecondsAfterFinished")
    if seconds is None:
        return []
    field = f"{path}.ttlSecondsAfterFinished"
    errors = []
    if seconds < 0:
        errors.append(invalid(field, seconds, "must be greater than or equal to 0"))
    if spec.get("restartPolicy") not in ("Never", "OnFailure"):
        text = 'may only be set when restartPolicy is "Never" or "OnFailure"'
        errors.append(forbidden(field, text))
    return errors


def validate_pod_spec(spec: Mapping[str, Any], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    if "terminationGracePeriodSeconds" not in spec:
        errors.append(required(f"{path}.terminationGracePeriodSeconds"))
    volumes = spec.get("volumes", ())
    if volumes:
        errors += validate_volumes(volumes, f"{path}.volumes")
    volume_names = {volume.get("name") for volume in volumes}
    host_network = spec.get("hostNetwork", False)
    errors += validate_containers(
        spec.get("containers", ()), volume_names, host_network, f"{path}.containers"
    )
    if "initContainers" in spec:
        errors += validate_init_containers(spec, volume_names, f"{path}.initContainers")
    if "resources" in spec or "overhead" in spec:
        errors += validate_pod_resources(spec, path)
    errors += _one_of(spec, "restartPolicy", _RESTART_POLICIES, path)
    errors += _one_of(spec, "dnsPolicy", _DNS_POLICIES, path)
    if "nodeSelector" in spec:
        errors += validate_labels(spec["nodeSelector"], f"{path}.nodeSelector")
    if spec.get("securityContext"):
        errors += _validate_security_context(spec["securityContext"], f"{path}.securityContext")
    if "affinity" in spec:
        errors += validate_affinity(spec["affinity"], f"{path}.affinity")
    errors += _validate_dns_config(spec, path)
    if "readinessGates" in spec:
        errors += _validate_readiness_gates(spec["readinessGates"], f"{path}.readinessGates")
    if "schedulingGates" in spec:
        errors += _validate_scheduling_gates(spec["schedulingGates"], f"{path}.schedulingGates")
    if "topologySpreadConstraints" in spec:
        errors += _validate_spread(
            spec["topologySpreadConstraints"], f"{path}.topologySpreadConstraints"
        )
    errors += _validate_names(spec, path)
    seconds = spec.get("activeDeadlineSeconds")
    if seconds is not None and not 1 <= seconds <= _MAX_INT32:
        errors.append(
            invalid(
                f"{path}.activeDeadlineSeconds",
                seconds,
                f"must be between 1 and {_MAX_INT32}, inclusive",
            )
        )
    if "tolerations" in spec:
        errors += validate_tolerations(spec["tolerations"], f"{path}.tolerations")
    if "hostAliases" in spec:
        errors += _validate_host_aliases(spec["hostAliases"], f"{path}.hostAliases")
    system = spec.get("os", {}).get("name")
    if "os" in spec and system not in ("linux", "windows"):
        errors.append(
            not_supported(f"{path}.os.name", system, ["linux", "windows"])
            if system
            else required(f"{path}.os.name")
        )
    return errors


def _one_of(
    spec: Mapping[str, Any], field: str, supported: list[str], path: str
) -> list[FieldError]:
    value = spec.get(field, "")
    if value in supported:
        return []
    if not value:
        return [required(f"{path}.{field}")]
    return [not_supported(f"{path}.{field}", value, supported)]


def _validate_names(spec: Mapping[str, Any], path: str) -> list[FieldError]:
    errors = []
    for field in ("serviceAccountName", "nodeName", "priorityClassName", "runtimeClassName"):
        if name := spec.get(field):
            errors += [invalid(f"{path}.{field}", name, text) for text in subdomain_errors(name)]
    for field in ("hostname", "subdomain"):
        errors += validate_hostname(spec.get(field, ""), f"{path}.{field}")
    return errors


def validate_hostname(name: str, path: str) -> list[FieldError]:
    return [invalid(path, name, text) for text in label_errors(name)] if name else []


def _validate_security_context(context: Mapping[str, Any], path: str) -> list[FieldError]:
    errors = []
    for field in ("runAsUser", "runAsGroup", "fsGroup"):
        value = context.get(field, 0)
        if not 0 <= value <= _MAX_ID:
            errors.append(_id_error(f"{path}.{field}", value))
    for i, group in enumerate(context.get("supplementalGroups", ())):
        if not 0 <= group <= _MAX_ID:
            errors.append(_id_error(f"{path}.supplementalGroups[{i}]", group))
    policy = context.get("fsGroupChangePolicy")
    if policy is not None and policy not in ("OnRootMismatch", "Always"):
        errors.append(
            not_supported(f"{path}.fsGroupChangePolicy", policy, ["Always", "OnRootMismatch"])
        )
    return errors


def _id_error(path: str, value: int) -> FieldError:
    return invalid(path, value, f"must be between 0 and {_MAX_ID}, inclusive")


def _validate_dns_config(spec: Mapping[str, Any], path: str) -> list[FieldError]:
    config = spec.get("dnsConfig", {})
    servers = config.get("nameservers", ())
    if spec.get("dnsPolicy") == "None" and not servers:
        place = f"{path}.dnsConfig.nameservers" if "dnsConfig" in spec else f"{path}.dnsConfig"
        return [
            required(
                place,
                "must provide at least one DNS nameserver when `dnsPolicy` is None"
                if "dnsConfig" in spec
                else "must provide `dnsConfig` when `dnsPolicy` is None",
            )
        ]
    return [
        invalid(
            f"{path}.dnsConfig.nameservers[{i}]",
            server,
            "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
        )
        for i, server in enumerate(servers)
        if not _is_address(server)
    ]


def _validate_readiness_gates(gates: Sequence[Mapping[str, Any]], path: str) -> list[FieldError]:
    return [
        invalid(f"{path}[{i}].conditionType", gate.get("conditionType", ""), text)
        for i, gate in enumerate(gates)
        for text in qualified_name_errors(gate.get("conditionType", ""))
    ]


def _validate_scheduling_gates(gates: Sequence[Mapping[str, Any]], path: str) -> list[FieldError]:
    errors = []
    seen = set()
    for i, gate in enumerate(gates):
        name = gate.get("name", "")
        errors += [invalid(f"{path}[{i}]", name, text) for text in qualified_name_errors(name)]
        if name in seen:
            errors.append(duplicate(f"{path}[{i}]", name))
        seen.add(name)
    return errors


def _validate_spread(constraints: Sequence[Mapping[str, Any]], path: str) -> list[FieldError]:
    errors = []
    for i, constraint in enumerate(constraints):
        place = f"{path}[{i}]"
        skew = constraint.get("maxSkew", 0)
        if skew <= 0:
            errors.append(invalid(f"{place}.maxSkew", skew, "must be greater than zero"))
        if not constraint.get("topologyKey"):
            errors.append(required(f"{place}.topologyKey", "can not be empty"))
        action = constraint.get("whenUnsatisfiable", "")
        if action not in ("DoNotSchedule", "ScheduleAnyway"):
            errors.append(
                not_supported(
                    f"{place}.whenUnsatisfiable", action, ["DoNotSchedule", "ScheduleAnyway"]
                )
            )
    return errors


def _validate_host_aliases(aliases: Sequence[Mapping[str, Any]], path: str) -> list[FieldError]:
    errors = []
    for i, alias in enumerate(aliases):
        address = alias.get("ip", "")
        if not _is_address(address):
            errors.append(
                invalid(
                    f"{path}[{i}].ip",
                    address,
                    "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
                )
            )
        for name in alias.get("hostnames", ()):
            errors += [
                invalid(f"{path}[{i}].hostnames", name, text) for text in subdomain_errors(name)
            ]
    return errors


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
