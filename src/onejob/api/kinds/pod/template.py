"""Validation of pod specs, in templates and in Pods."""

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any, Final

from onejob.api.kinds.pod.containers import validate_containers, validate_init_containers
from onejob.api.kinds.pod.placement import validate_affinity, validate_tolerations
from onejob.api.kinds.pod.resources import validate_pod_resources
from onejob.api.kinds.pod.security import validate_linux, validate_pod_security
from onejob.api.kinds.pod.volumes import validate_volumes
from onejob.planning.names import OUTPUT_ANNOTATIONS
from onejob.wire.field_errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    too_long,
)
from onejob.wire.labels import validate_annotations, validate_labels
from onejob.wire.names import label_errors, qualified_name_errors, subdomain_errors

_MAX_INT32: Final = 2**31 - 1

_MAX_HOSTNAME_LENGTH: Final = 64
_RESTART_POLICIES: Final = ["Always", "OnFailure", "Never"]
_PREEMPTION_POLICIES: Final = ["PreemptLowerPriority", "Never"]
_INCLUSION_POLICIES: Final = ["Honor", "Ignore"]
#: Limits of the C library's resolver.
_MAX_NAMESERVERS: Final = 3
_MAX_SEARCHES: Final = 32
_MAX_SEARCHES_LENGTH: Final = 2048
_DNS_POLICIES: Final = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"]


def validate_pod_template(template: Mapping[str, Any], path: str) -> list[FieldError]:
    metadata = template.get("metadata", {})
    spec = template.get("spec", {})
    # Upstream omits `.metadata` from these two paths, and clients rely on it.
    errors = validate_labels(metadata.get("labels", {}), f"{path}.labels")
    errors += validate_annotations(metadata.get("annotations", {}), f"{path}.annotations")
    if not OUTPUT_ANNOTATIONS.isdisjoint(metadata.get("annotations", ())):
        # Imported on use: few Pods have outputs.
        from onejob.api.kinds.pod.outputs import validate_outputs

        errors += validate_outputs(metadata["annotations"], f"{path}.annotations")
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
    """Validate `ttlSecondsAfterFinished` of a Pod, or of a template outside a Job.

    A Pod that is always restarted never finishes.
    """
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
    errors += validate_containers(
        spec.get("containers", ()), volume_names, spec, f"{path}.containers"
    )
    if "initContainers" in spec:
        errors += validate_init_containers(spec, volume_names, f"{path}.initContainers")
    if "resources" in spec or "overhead" in spec:
        errors += validate_pod_resources(spec, path)
    if spec.get("hostNetwork"):
        errors += _validate_host_network(spec.get("containers", ()), f"{path}.containers")
    errors += _one_of(spec, "restartPolicy", _RESTART_POLICIES, path)
    errors += _one_of(spec, "dnsPolicy", _DNS_POLICIES, path)
    if "nodeSelector" in spec:
        errors += validate_labels(spec["nodeSelector"], f"{path}.nodeSelector")
    if spec.get("securityContext"):
        errors += validate_pod_security(spec, f"{path}.securityContext")
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        why = "ShareProcessNamespace and HostPID cannot both be enabled"
        errors.append(invalid(f"{path}.shareProcessNamespace", True, why))
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
    if spec.get("hostUsers") is False:
        errors += _validate_host_users(spec, path)
    if "hostnameOverride" in spec:
        errors += _validate_hostname_override(spec, f"{path}.hostnameOverride")
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
    if "preemptionPolicy" in spec:
        errors += _one_of(spec, "preemptionPolicy", _PREEMPTION_POLICIES, path)
    system = spec.get("os", {}).get("name")
    if system == "linux":
        errors += validate_linux(spec, path)
    elif "os" in spec and system != "windows":
        errors.append(
            # As upstream, the path names the object.
            not_supported(f"{path}.os", system, ["linux", "windows"])
            if system
            else required(f"{path}.os.name")
        )
    return errors


def _one_of(
    spec: Mapping[str, Any], field: str, supported: list[str], path: str
) -> list[FieldError]:
    """Return an error unless a required field has a supported value."""
    value = spec.get(field, "")
    if value in supported:
        return []
    if not value:
        return [required(f"{path}.{field}")]
    return [not_supported(f"{path}.{field}", value, supported)]


def _validate_host_network(containers: Sequence[Mapping[str, Any]], path: str) -> list[FieldError]:
    why = "must match `containerPort` when `hostNetwork` is true"
    return [
        invalid(f"{path}[{i}].ports[{j}].hostPort", port["hostPort"], why)
        for i, container in enumerate(containers)
        for j, port in enumerate(container.get("ports", ()))
        # An absent port gets its value when the Pod is created.
        if port.get("hostPort") and port["hostPort"] != port.get("containerPort", 0)
    ]


def _validate_names(spec: Mapping[str, Any], path: str) -> list[FieldError]:
    errors = []
    for field in ("serviceAccountName", "nodeName", "priorityClassName", "runtimeClassName"):
        if name := spec.get(field):
            errors += [invalid(f"{path}.{field}", name, text) for text in subdomain_errors(name)]
    for field in ("hostname", "subdomain"):
        errors += validate_hostname(spec.get(field, ""), f"{path}.{field}")
    return errors


def _validate_hostname_override(spec: Mapping[str, Any], path: str) -> list[FieldError]:
    name = spec["hostnameOverride"]
    errors = [
        forbidden(path, f"may not be specified when {field} is true")
        for field in ("setHostnameAsFQDN", "hostNetwork")
        if spec.get(field)
    ]
    if len(name.encode()) > _MAX_HOSTNAME_LENGTH:
        errors.append(too_long(path, _MAX_HOSTNAME_LENGTH))
    return errors + [invalid(path, name, text) for text in subdomain_errors(name)]


def validate_hostname(name: str, path: str) -> list[FieldError]:
    return [invalid(path, name, text) for text in label_errors(name)] if name else []


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
    place = f"{path}.dnsConfig"
    errors = []
    if len(servers) > _MAX_NAMESERVERS:
        why = f"must not have more than {_MAX_NAMESERVERS} nameservers"
        errors.append(invalid(f"{place}.nameservers", servers, why))
    errors += [
        invalid(
            f"{place}.nameservers[{i}]",
            server,
            "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
        )
        for i, server in enumerate(servers)
        if not _is_address(server)
    ]
    searches = config.get("searches", ())
    if len(searches) > _MAX_SEARCHES:
        why = f"must not have more than {_MAX_SEARCHES} search paths"
        errors.append(invalid(f"{place}.searches", searches, why))
    if len(" ".join(searches).encode()) > _MAX_SEARCHES_LENGTH:
        why = (
            f"must not have more than {_MAX_SEARCHES_LENGTH} characters (including spaces) in the "
            "search list"
        )
        errors.append(invalid(f"{place}.searches", searches, why))
    return errors + [
        required(f"{place}.options[{i}]", "must not be empty")
        for i, option in enumerate(config.get("options", ()))
        if not option.get("name")
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
    kinds = [(one.get("topologyKey", ""), one.get("whenUnsatisfiable", "")) for one in constraints]
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
        kind = (constraint.get("topologyKey", ""), action)
        if kind in kinds[i + 1 :]:
            repeated = f"{place}.{{topologyKey, whenUnsatisfiable}}"
            errors.append(duplicate(repeated, f"{{{kind[0]}, {kind[1]}}}"))
        domains = constraint.get("minDomains")
        if domains is not None and domains <= 0:
            errors.append(invalid(f"{place}.minDomains", domains, "must be greater than zero"))
        if domains is not None and action != "DoNotSchedule":
            why = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
            errors.append(invalid(f"{place}.minDomains", domains, why))
        errors += [
            not_supported(f"{place}.{field}", constraint[field], _INCLUSION_POLICIES)
            for field in ("nodeAffinityPolicy", "nodeTaintsPolicy")
            if constraint.get(field, "Honor") not in _INCLUSION_POLICIES
        ]
    return errors


def _validate_host_users(spec: Mapping[str, Any], path: str) -> list[FieldError]:
    """Return errors for host namespaces that require `hostUsers`.

    As upstream, two of the fields are written with a capital letter.
    """
    shared = {"hostNetwork": "hostNetwork", "hostPID": "HostPID", "hostIPC": "HostIPC"}
    return [
        forbidden(f"{path}.{shown}", "when `hostUsers` is false")
        for field, shown in shared.items()
        if spec.get(field)
    ]


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
