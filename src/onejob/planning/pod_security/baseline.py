"""Checks of the baseline level: known privilege escalations of a Pod."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from onejob.planning.pod_security.violations import (
    Annotations,
    Check,
    Spec,
    Violation,
    containers,
    contexts,
    has_user_namespace,
    named,
    plural,
    pod_context,
    quoted,
    setters,
)

_APP_ARMOR_PREFIX: Final = "container.apparmor.security.beta.kubernetes.io/"
_SECCOMP_POD: Final = "seccomp.security.alpha.kubernetes.io/pod"
_SECCOMP_PREFIX: Final = "container.seccomp.security.alpha.kubernetes.io/"
#: Annotations that the checks read.
READ_ANNOTATIONS: Final = (_APP_ARMOR_PREFIX, _SECCOMP_POD, _SECCOMP_PREFIX)
_PROFILES: Final = ("RuntimeDefault", "Localhost")

_CAPABILITIES: Final = frozenset(
    ("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD",
     "NET_BIND_SERVICE", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT")
)  # fmt: skip

_SYSCTLS_1_0: Final = frozenset(
    ("kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies",
     "net.ipv4.ping_group_range", "net.ipv4.ip_unprivileged_port_start")
)  # fmt: skip
_SYSCTLS_1_27: Final = _SYSCTLS_1_0 | {"net.ipv4.ip_local_reserved_ports"}
_SYSCTLS_1_29: Final = _SYSCTLS_1_27 | {
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
}
_SYSCTLS_1_32: Final = _SYSCTLS_1_29 | {"net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"}
_SYSCTLS_1_37: Final = _SYSCTLS_1_32 | {
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_notsent_lowat",
}

_SE_LINUX_1_0: Final = frozenset(("", "container_t", "container_init_t", "container_kvm_t"))
_SE_LINUX_1_31: Final = _SE_LINUX_1_0 | {"container_engine_t"}


def _in_quotes(text: str) -> str:
    return msgspec.json.encode(text).decode()


def app_armor_profile(annotations: Annotations, spec: Spec) -> Violation | None:
    """Return the violation by an AppArmor profile that is not permitted, or None."""
    values: set[str] = set()

    def is_bad(context: Mapping[str, Any]) -> bool:
        profile = context.get("appArmorProfile")
        if profile is None or profile.get("type") in _PROFILES:
            return False
        values.add(profile.get("type", ""))
        return True

    pod = is_bad(pod_context(spec))
    bad = setters(pod, [name for name, context in contexts(spec) if is_bad(context)])
    forbidden = sorted(
        f"{key}={_in_quotes(value)}"
        for key, value in annotations.items()
        if key.startswith(_APP_ARMOR_PREFIX)
        and value not in ("", "runtime/default")
        and not value.startswith("localhost/")
    )
    shown = [*sorted(values), *forbidden]
    if forbidden:
        bad.append(plural("annotation", "annotations", len(forbidden)))
    if not bad:
        return None
    return Violation(
        plural("forbidden AppArmor profile", "forbidden AppArmor profiles", len(shown)),
        f"{' and '.join(bad)} must not set AppArmor profile type to {quoted(shown)}",
    )


def capabilities(annotations: Annotations, spec: Spec) -> Violation | None:
    """Return the violation by an added capability beyond the defaults, or None."""
    bad: list[str] = []
    excess: set[str] = set()
    for name, context in contexts(spec):
        added = set((context.get("capabilities") or {}).get("add") or ()) - _CAPABILITIES
        if added:
            bad.append(name)
            excess |= added
    if not bad:
        return None
    return Violation(
        "non-default capabilities",
        f"{named(bad)} must not include {quoted(sorted(excess))} in "
        "securityContext.capabilities.add",
    )


def host_namespaces(annotations: Annotations, spec: Spec) -> Violation | None:
    """Return the violation by hostNetwork, hostPID or hostIPC, or None."""
    used = [f"{field}=true" for field in ("hostNetwork", "hostPID", "hostIPC") if spec.get(field)]
    return Violation("host namespaces", ", ".join(used)) if used else None


def host_path_volumes(annotations: Annotations, spec: Spec) -> Violation | None:
    """Return the violation by a hostPath volume, or None."""
    bad = [volume["name"] for volume in spec.get("volumes") or () if "hostPath" in volume]
    return Violation("hostPath volumes", named(bad, "volume")) if bad else None


def host_ports(annotations: Annotations, spec: Spec) -> Violation | None:
    """Return the violation by a hostPort, or None."""
    bad: list[str] = []
    used: set[str] = set()
    for name, container in containers(spec):
        ports = {str(port["hostPort"]) for port in container.get("ports") or () if _on_host(port)}
        if ports:
            bad.append(name)
            used |= ports
    if not bad:
        return None
    verb, noun = plural("uses", "use", len(bad)), plural("hostPort", "hostPorts", len(used))
    return Violation("hostPort", f"{named(bad)} {verb} {noun} {', '.join(sorted(used))}")


def _on_host(port: Mapping[str, Any]) -> bool:
    """Return whether the port occupies one of the host."""
    return bool(port.get("hostPort"))


def probe_hosts(annotations: Annotations, spec: Spec) -> Violation | None:
    """Return the violation by a host in a probe or hook, or None."""
    bad: set[str] = set()
    hosts: set[str] = set()
    for name, container in containers(spec):
        lifecycle = container.get("lifecycle") or {}
        handlers = [
            container.get("livenessProbe"),
            container.get("readinessProbe"),
            container.get("startupProbe"),
            lifecycle.get("postStart"),
            lifecycle.get("preStop"),
        ]
        found = {
            host
            for handler in handlers
            for action in ("httpGet", "tcpSocket")
            if (host := ((handler or {}).get(action) or {}).get("host"))
        }
        if found:
            bad.add(name)
            hosts |= found
    if not bad:
        return None
    what = "probe or lifecycle host"
    return Violation(
        what,
        f"{named(sorted(bad))} {plural('uses', 'use', len(bad))} "
        f"{plural(what, what + 's', len(hosts))} {quoted(sorted(hosts))}",
    )


def privileged(annotations: Annotations, spec: Spec) -> Violation | None:
    """Return the violation by a privileged container, or None."""
    bad = [name for name, context in contexts(spec) if context.get("privileged")]
    if not bad:
        return None
    return Violation("privileged", f"{named(bad)} must not set securityContext.privileged=true")


def proc_mount(annotations: Annotations, spec: Spec) -> Violation | None:
    """Return the violation by a procMount other than Default, or None."""
    bad = {
        name: context["procMount"]
        for name, context in contexts(spec)
        if context.get("procMount", "Default") != "Default"
    }
    if not bad:
        return None
    types = quoted(sorted(set(bad.values())))
    return Violation(
        "procMount", f"{named(list(bad))} must not set securityContext.procMount to {types}"
    )


def proc_mount_of_host_users(annotations: Annotations, spec: Spec) -> Violation | None:
    """Return the violation by procMount in a Pod without its own user namespace, or None."""
    return None if has_user_namespace(spec) else proc_mount(annotations, spec)


def _se_linux_options(allowed: frozenset[str]) -> Check:
    def check(annotations: Annotations, spec: Spec) -> Violation | None:
        types: set[str] = set()
        fields: set[str] = set()

        def is_bad(context: Mapping[str, Any]) -> bool:
            options = context.get("seLinuxOptions")
            if options is None:
                return False
            wrong_type = options.get("type", "") not in allowed
            if wrong_type:
                types.add(options["type"])
            wrong = [field for field in ("user", "role") if options.get(field)]
            fields.update(wrong)
            return wrong_type or bool(wrong)

        pod = is_bad(pod_context(spec))
        bad = setters(pod, [name for name, context in contexts(spec) if is_bad(context)])
        if not bad:
            return None
        said = [named(sorted(types), "type")] if types else []
        said += [f"{field} may not be set" for field in ("user", "role") if field in fields]
        return Violation(
            "seLinuxOptions",
            f"{' and '.join(bad)} set forbidden securityContext.seLinuxOptions: {'; '.join(said)}",
        )

    return check


def seccomp_annotations(annotations: Annotations, spec: Spec) -> Violation | None:
    """Return the violation by a seccomp annotation, or None."""
    keys = [_SECCOMP_POD, *(_SECCOMP_PREFIX + name for name, _ in containers(spec))]
    bad = sorted(
        {
            f"{key}={_in_quotes(annotations[key])}"
            for key in keys
            if key in annotations
            and annotations[key] not in ("runtime/default", "docker/default")
            and not annotations[key].startswith("localhost/")
        }
    )
    if not bad:
        return None
    what = plural("annotation", "annotations", len(bad))
    return Violation("seccompProfile", f"forbidden {what} {', '.join(bad)}")


def bad_seccomp(context: Mapping[str, Any]) -> str | None:
    """Return the type of a forbidden seccomp profile; None if the profile is unset or allowed."""
    profile = context.get("seccompProfile")
    if profile is None or profile.get("type") in _PROFILES:
        return None
    return str(profile.get("type", ""))


def seccomp_profile(annotations: Annotations, spec: Spec) -> Violation | None:
    """Return the violation by a seccomp profile that is not permitted, or None."""
    of_pod = bad_seccomp(pod_context(spec))
    of_containers = {
        name: value
        for name, context in contexts(spec)
        if (value := bad_seccomp(context)) is not None
    }
    bad = setters(of_pod is not None, list(of_containers))
    if not bad:
        return None
    values = set(of_containers.values()) | ({of_pod} if of_pod is not None else set())
    return Violation(
        "seccompProfile",
        f"{' and '.join(bad)} must not set securityContext.seccompProfile.type to "
        f"{quoted(sorted(values))}",
    )


def _sysctls(allowed: Iterable[str]) -> Check:
    """Return the check that only these sysctls are set."""
    names = frozenset(allowed)

    def check(annotations: Annotations, spec: Spec) -> Violation | None:
        sysctls = pod_context(spec).get("sysctls") or ()
        used = [sysctl.get("name", "") for sysctl in sysctls]
        bad = [name for name in used if name not in names]
        return Violation("forbidden sysctls", ", ".join(bad)) if bad else None

    return check


def host_process(annotations: Annotations, spec: Spec) -> Violation | None:
    """Return the violation by a Windows HostProcess container, or None."""

    def is_bad(context: Mapping[str, Any]) -> bool:
        return bool((context.get("windowsOptions") or {}).get("hostProcess"))

    names = [name for name, context in contexts(spec) if is_bad(context)]
    bad = setters(is_bad(pod_context(spec)), names)
    if not bad:
        return None
    return Violation(
        "hostProcess",
        f"{' and '.join(bad)} must not set securityContext.windowsOptions.hostProcess=true",
    )


#: By name, in the order of the results: each version of the check, and the minor Kubernetes version
#: that introduced it.
BASELINE_CHECKS: Final[Mapping[str, tuple[tuple[int, Check], ...]]] = {
    "appArmorProfile": ((0, app_armor_profile),),
    "capabilities_baseline": ((0, capabilities),),
    "hostNamespaces": ((0, host_namespaces),),
    "hostPathVolumes": ((0, host_path_volumes),),
    "hostPorts": ((0, host_ports),),
    "hostProbesAndHostLifecycle": ((34, probe_hosts),),
    "privileged": ((0, privileged),),
    "procMount": ((0, proc_mount), (35, proc_mount_of_host_users)),
    "seLinuxOptions": (
        (0, _se_linux_options(_SE_LINUX_1_0)),
        (31, _se_linux_options(_SE_LINUX_1_31)),
    ),
    "seccompProfile_baseline": ((0, seccomp_annotations), (19, seccomp_profile)),
    "sysctls": (
        (0, _sysctls(_SYSCTLS_1_0)),
        (27, _sysctls(_SYSCTLS_1_27)),
        (29, _sysctls(_SYSCTLS_1_29)),
        (32, _sysctls(_SYSCTLS_1_32)),
        (37, _sysctls(_SYSCTLS_1_37)),
    ),
    "windowsHostProcess": ((0, host_process),),
}
