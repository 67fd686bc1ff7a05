"""securityContext evaluation: a container's effective rights, or the reason to refuse it. Pure.

Capabilities are bit sets, numbered as in the kernel.
"""

from collections.abc import Iterator, Sequence
from typing import Final, Literal

from msgspec import Struct

from onejob.objects.pod_spec import (
    Capabilities,
    Container,
    NodePod,
    NodePodSpec,
    PodSecurityContext,
    Profile,
    SecurityContext,
)
from onejob.planning.pod.account_volume import ACCOUNT_FOLDER

_NAMES: Final = (
    "CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID",
    "SETPCAP", "LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW",
    "IPC_LOCK", "IPC_OWNER", "SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT",
    "SYS_ADMIN", "SYS_BOOT", "SYS_NICE", "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD",
    "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP", "MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG",
    "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF", "CHECKPOINT_RESTORE",
)  # fmt: skip
_BITS: Final = {name: 1 << number for number, name in enumerate(_NAMES)}
_ALL: Final = (1 << len(_NAMES)) - 1


def _capability_mask(*names: str) -> int:
    return sum(_BITS[name] for name in names)


#: terminationMessagePath of containers that set none.
DEFAULT_MESSAGE_PATH: Final = "/dev/termination-log"

#: Capabilities granted by container engines by default.
_DEFAULT: Final = _capability_mask(
    "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP",
    "NET_BIND_SERVICE", "NET_RAW", "SYS_CHROOT", "MKNOD", "AUDIT_WRITE", "SETFCAP",
)  # fmt: skip
#: Capabilities that do not allow changing the files of a host that is mounted read-only.
_HARMLESS: Final = (_DEFAULT & ~_capability_mask("MKNOD", "AUDIT_WRITE")) | _capability_mask(
    "SYS_NICE", "IPC_LOCK"
)


class Privileges(Struct, frozen=True):
    """Privileges of a container's process; its user and groups are chosen elsewhere."""

    #: Bounding set of the container; None to inherit the server's capabilities.
    capabilities: int | None = None
    no_new_privileges: bool = False
    read_only_root: bool = False


class Refused(Struct, frozen=True):
    """Reason why a container cannot run with its securityContext."""

    message: str
    reason: str = "CreateContainerConfigError"


def privileges_of(
    pod: NodePod, container: Container, *, host_read_only: bool
) -> Privileges | Refused:
    """Return the privileges of the process that runs as the container, or the refusal.

    `host_read_only`: the process must have no right that lets it change files of the host.
    """
    own = container.security_context
    if host_read_only and (own.privileged or pod.spec.host_pid):
        what = "privileged containers" if own.privileged else "Pods with hostPID"
        return Refused(f"--host-fs ro does not allow {what} (container: {container.name})")
    places_files = _runs_as_other_user(pod, container) and _can_shadow_host_files(pod, container)
    if own.privileged:
        return Privileges(None, places_files, own.read_only_root_filesystem)
    capabilities = _capabilities(own, host_read_only=host_read_only)
    if isinstance(capabilities, Refused):
        return capabilities
    return Privileges(
        capabilities,
        places_files or host_read_only or own.allow_privilege_escalation is False,
        own.read_only_root_filesystem,
    )


def _runs_as_other_user(pod: NodePod, container: Container) -> bool:
    """Return whether the container runs as a user other than root.

    This requires the server to be root.
    """
    own, shared = container.security_context.run_as_user, pod.spec.security_context.run_as_user
    return bool(shared if own is None else own)


def _can_shadow_host_files(pod: NodePod, container: Container) -> bool:
    """Return whether the Pod can replace files of the host in the container's view.

    Set-uid programs of the host trust the files below /etc and /lib: with a volume mounted there,
    `su` makes any user root. The trusted paths cannot be listed exhaustively, so the exceptions
    here are the paths that no such program trusts.
    """
    return (
        any(mount.mount_path != ACCOUNT_FOLDER for mount in container.volume_mounts)
        or container.termination_message_path not in ("", DEFAULT_MESSAGE_PATH)
        or bool(pod.spec.host_aliases)
    )


def _capabilities(own: SecurityContext, *, host_read_only: bool) -> int | Refused | None:
    """Return the capabilities as a bit mask; None to keep the server's, Refused if they cannot be
    granted."""
    asked = own.capabilities
    if asked is None and not own.read_only_root_filesystem and not host_read_only:
        # Containers that operate on the host keep the server's capabilities.
        return None
    asked = asked or Capabilities()
    added, dropped = _normalized_names(asked.add), _normalized_names(asked.drop)
    for names in (added, dropped):
        for name in names:
            if name != "ALL" and name not in _BITS:
                return Refused(f'unknown capability "CAP_{name}"', "CreateContainerError")
    allowed = _HARMLESS if host_read_only else _ALL
    base = _DEFAULT & allowed
    if "ALL" in added:
        base = _ALL
    if "ALL" in dropped:
        base = 0
    for name in added:
        base |= _BITS.get(name, 0)
    for name in dropped:
        base &= ~_BITS.get(name, 0)
    if excess := [name for name, bit in _BITS.items() if base & ~allowed & bit]:
        return Refused(f"--host-fs ro does not allow capabilities: {', '.join(excess)}")
    return base


def _normalized_names(names: Sequence[str]) -> list[str]:
    return [name.upper().removeprefix("CAP_") for name in names]


def root_refusal(
    pod: NodePod, container: Container, *, default_user: int | None, user_name: str = ""
) -> Refused | None:
    """Return the kubelet's refusal by runAsNonRoot, or None.

    `default_user` runs containers that specify no user; None if only its name is available.
    """
    own, shared = container.security_context, pod.spec.security_context
    wanted = own.run_as_non_root if own.run_as_non_root is not None else shared.run_as_non_root
    if not wanted:
        return None
    meta = pod.metadata
    where = f'(pod: "{meta.name}_{meta.namespace}({meta.uid})", container: {container.name})'
    user = own.run_as_user if own.run_as_user is not None else shared.run_as_user
    if user is not None:
        if user != 0:
            return None
        return Refused(f"container's runAsUser breaks non-root policy {where}")
    if default_user is None:
        return Refused(
            f"container has runAsNonRoot and image has non-numeric user ({user_name}), "
            f"cannot verify user is non-root {where}"
        )
    if default_user == 0:
        return Refused(f"container has runAsNonRoot and image will run as root {where}")
    return None


class Means(Struct, frozen=True):
    """Mechanisms available to enforce a securityContext."""

    #: True if a container engine enforces it.
    engine: bool = False
    root: bool = True
    #: Runtime of the node; "" if Pods run elsewhere.
    runtime: Literal["process", "podman", ""] = "process"
    mount_namespaces: bool = True


def not_enforced(spec: NodePodSpec, means: Means) -> list[str]:
    """Return the spec fields that request a protection or right which is not enforced."""
    if means.engine:
        return []
    shared = "securityContext"
    fields = [f"{shared}.{field}" for field in _ignored_in_both(spec.security_context)]
    fields += [f"{shared}.{field}" for field in _ignored_in_pod(spec.security_context, means)]
    for kind, containers in (
        ("initContainers", spec.init_containers),
        ("containers", spec.containers),
    ):
        for i, container in enumerate(containers):
            path = f"{kind}[{i}].securityContext"
            own = container.security_context
            fields += [f"{path}.{field}" for field in _ignored_in_both(own)]
            fields += [f"{path}.{field}" for field in _ignored_in_container(own, means)]
    return fields


def _ignored_in_both(context: SecurityContext | PodSecurityContext) -> Iterator[str]:
    if _is_confining(context.seccomp_profile):
        yield "seccompProfile"
    if _is_confining(context.app_armor_profile):
        yield "appArmorProfile"
    if context.se_linux_options:
        yield "seLinuxOptions"


def _ignored_in_pod(context: PodSecurityContext, means: Means) -> Iterator[str]:
    """Yield the fields of a Pod's security context that cannot be enforced."""
    if context.sysctls:
        yield "sysctls"
    if means.root:
        return
    yield from _user_and_group_fields(context)
    if context.fs_group is not None:
        yield "fsGroup"
    if context.supplemental_groups:
        yield "supplementalGroups"


def _ignored_in_container(context: SecurityContext, means: Means) -> Iterator[str]:
    """Yield the fields of a container's security context that cannot be enforced."""
    if context.proc_mount not in ("", "Default"):
        yield "procMount"
    if context.read_only_root_filesystem and not means.mount_namespaces:
        yield "readOnlyRootFilesystem"
    if means.root:
        return
    yield from _user_and_group_fields(context)
    if context.privileged:
        yield "privileged"
    if context.capabilities is not None and context.capabilities.add:
        yield "capabilities.add"


def _user_and_group_fields(context: SecurityContext | PodSecurityContext) -> Iterator[str]:
    if context.run_as_user is not None:
        yield "runAsUser"
    if context.run_as_group is not None:
        yield "runAsGroup"


def _is_confining(profile: Profile | None) -> bool:
    return profile is not None and profile.type not in ("", "Unconfined")
