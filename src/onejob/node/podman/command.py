"""Engine arguments that create one container according to its Pod spec. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from onejob.node.podman.engine import Abilities
from onejob.node.podman.image_volumes import image_mounts
from onejob.node.podman.images import ImageFacts
from onejob.node.podman.records import (
    ATTEMPT,
    BOOT,
    CONTAINER,
    DATA_DIR,
    MESSAGE_POLICY,
    POD,
    POD_UID,
    STOP_SIGNAL,
)
from onejob.node.podman.user_namespaces import user_namespace_arguments
from onejob.node.runtime import AttemptRef
from onejob.node.setup.environment import ConfigProblem, expand_all
from onejob.node.setup.volumes import Mount
from onejob.objects.pod_spec import Container, NodePod, Profile
from onejob.planning.pod.demand import with_pod_limits
from onejob.planning.pod.security import root_refusal
from onejob.wire.quantity import InvalidQuantity, parse_quantity

#: The kubelet's file size; the engine keeps one such file, the node five.
_LOG_BYTES = 10 * 1024 * 1024
_HOSTNAME_LENGTH = 63

#: Prefixes of environment variables that affect the engine's client itself.
_ENGINES_OWN = (
    "BUILDAH_", "CONTAINER", "CONMON_", "DBUS_", "DOCKER_", "GLIBC_", "GO", "HOME", "LD_",
    "LISTEN_", "MALLOC_", "NOTIFY_", "PATH", "PODMAN_", "REGISTRY_", "SSL_", "STORAGE_", "TMPDIR",
    "XDG_", "_",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class NodeSide:
    """The part of a container's arguments that comes from the node rather than from its Pod."""

    data_dir: str
    boot_id: str
    abilities: Abilities = field(default_factory=Abilities)
    #: Options of the user: networks, ulimits, another OCI runtime.
    options: tuple[str, ...] = ()
    is_docker: bool = False
    #: The engine runs as an unprivileged user.
    rootless: bool = False


@dataclass(frozen=True, slots=True)
class RunRequest:
    """Arguments, and an environment for values that must not be in an argument list, which every
    user may read."""

    arguments: tuple[str, ...]
    env: Mapping[str, str]


def container_name(ref: AttemptRef) -> str:
    """Return the container's name, unique per attempt: the engine refuses a second one of the same
    name."""
    return f"onejob-{ref.uid}-{ref.container}-{ref.attempt}"


def run_request(
    pod: NodePod,
    container: Container,
    ref: AttemptRef,
    *,
    env: Mapping[str, str],
    mounts: Sequence[Mount],
    image: ImageFacts,
    log_file: Path,
    node_side: NodeSide,
) -> RunRequest:
    """Return the engine's arguments and environment for one attempt. Raises ConfigProblem."""
    _refuse_root(pod, container, image)
    env_arguments, client_env = pass_environment(env)
    mapped = not pod.spec.host_users and not node_side.rootless
    arguments = [
        "--detach",
        "--pull=never",
        f"--name={container_name(ref)}",
        *_labels(pod, container, ref, image, node_side),
        *_identity(pod, container, image),
        *security_arguments(pod, container, is_docker=node_side.is_docker),
        *limit_arguments(with_pod_limits(pod.spec, container), node_side.abilities),
        *env_arguments,
        *user_namespace_arguments(pod, is_docker=node_side.is_docker, rootless=node_side.rootless),
        *(_volume(mount, mapped=mapped) for mount in mounts),
        *image_mounts(pod, container, is_docker=node_side.is_docker),
        *_host_aliases(pod),
        f"--hostname={_hostname(pod)}",
        f"--stop-timeout={max(pod.spec.termination_grace_period_seconds, 0)}",
        # The Pod's probes define health, not the image.
        "--no-healthcheck",
        *_logging(log_file, node_side),
    ]
    if container.working_dir:
        arguments.append(f"--workdir={container.working_dir}")
    if pod.spec.host_network and not any(o.startswith("--net") for o in node_side.options):
        arguments.append("--network=host")
    arguments += node_side.options
    command = expand_all((*container.command, *container.args), env)
    if container.command:
        arguments.append(f"--entrypoint={command.pop(0)}")
    # After "--", no image name can be taken for an option.
    return RunRequest((*arguments, "--", container.image, *command), client_env)


def pass_environment(env: Mapping[str, str]) -> tuple[list[str], Mapping[str, str]]:
    """Return arguments, and the client's environment variables from which they take values.

    Values may be secret, so they are passed through the client's environment. A value is passed as
    an argument only if the variable would affect the client itself, or the client would misread its
    name.
    """
    arguments, inherited = [], {}
    for name, value in env.items():
        if name.startswith(_ENGINES_OWN) or name.lower().endswith("_proxy") or "*" in name:
            arguments.append(f"--env={name}={value}")
        else:
            arguments.append(f"--env={name}")
            inherited[name] = value
    return arguments, inherited


def _labels(
    pod: NodePod, container: Container, ref: AttemptRef, image: ImageFacts, node_side: NodeSide
) -> list[str]:
    """Return the arguments that label the container."""
    labels = {
        DATA_DIR: node_side.data_dir,
        POD: f"{pod.metadata.namespace}/{pod.metadata.name}",
        POD_UID: ref.uid,
        CONTAINER: ref.container,
        ATTEMPT: str(ref.attempt),
        BOOT: node_side.boot_id,
        MESSAGE_POLICY: container.termination_message_policy,
    }
    if image.stop_signal:
        labels[STOP_SIGNAL] = image.stop_signal
    return [f"--label={name}={value}" for name, value in labels.items()]


def _identity(pod: NodePod, container: Container, image: ImageFacts) -> list[str]:
    """Return the arguments that set user, group and supplementary groups."""
    own, shared = container.security_context, pod.spec.security_context
    user = own.run_as_user if own.run_as_user is not None else shared.run_as_user
    group = own.run_as_group if own.run_as_group is not None else shared.run_as_group
    arguments = []
    if group is not None:
        name = image.user.partition(":")[0] or "0"
        arguments.append(f"--user={name if user is None else user}:{group}")
    elif user is not None:
        arguments.append(f"--user={user}")
    groups = [*([] if shared.fs_group is None else [shared.fs_group]), *shared.supplemental_groups]
    return [*arguments, *(f"--group-add={number}" for number in groups)]


def _refuse_root(pod: NodePod, container: Container, image: ImageFacts) -> None:
    """Raise ConfigProblem if the container would run as root although it must not."""
    name = image.user.partition(":")[0] or "0"
    number = int(name) if name.isdigit() else None
    refused = root_refusal(pod, container, default_user=number, user_name=name)
    if refused is not None:
        raise ConfigProblem(refused.message, refused.reason)


def security_arguments(pod: NodePod, container: Container, *, is_docker: bool) -> list[str]:
    """Return the arguments by which the engine enforces the securityContext."""
    own, shared = container.security_context, pod.spec.security_context
    arguments = [f"--sysctl={item.name}={item.value}" for item in shared.sysctls]
    if pod.spec.host_pid:
        arguments.append("--pid=host")
    if pod.spec.host_ipc:
        arguments.append("--ipc=host")
    if own.privileged:
        arguments.append("--privileged")
    if own.capabilities is not None:
        arguments += [f"--cap-drop={name}" for name in own.capabilities.drop]
        arguments += [f"--cap-add={name}" for name in own.capabilities.add]
    if own.read_only_root_filesystem:
        # Podman would mount a tmpfs over /tmp and similar folders, which Kubernetes does not.
        arguments += ["--read-only", *([] if is_docker else ["--read-only-tmpfs=false"])]
    options = []
    if own.allow_privilege_escalation is False:
        options.append("no-new-privileges")
    options += _profile("seccomp", own.seccomp_profile or shared.seccomp_profile, _SECCOMP_FOLDER)
    options += _profile("apparmor", own.app_armor_profile or shared.app_armor_profile, "")
    labels = own.se_linux_options or shared.se_linux_options
    options += [f"label={name}:{value}" for name, value in labels.items()]
    if own.proc_mount == "Unmasked":
        options.append("systempaths=unconfined" if is_docker else "unmask=ALL")
    return [*arguments, *(f"--security-opt={option}" for option in options)]


#: Folder in which the kubelet looks up profiles named by a Pod.
_SECCOMP_FOLDER = "/var/lib/kubelet/seccomp/"


def _profile(kind: str, profile: Profile | None, folder: str) -> list[str]:
    """Return the argument of a security profile; none for the engine's default."""
    if profile is None or profile.type not in ("Unconfined", "Localhost"):
        # The engine applies its default profile by itself.
        return []
    if profile.type == "Unconfined":
        return [f"{kind}=unconfined"]
    return [f"{kind}={folder}{profile.localhost_profile}"]


def limit_arguments(container: Container, abilities: Abilities) -> list[str]:
    """Return the arguments that limit resources, as far as the engine is able to. Raises
    ConfigProblem."""
    limits, arguments = container.resources.limits, []
    try:
        if "memory" in limits and abilities.memory:
            arguments.append(f"--memory={parse_quantity(limits['memory']).nanos // 10**9}b")
        if "cpu" in limits and abilities.cpus:
            milli = parse_quantity(limits["cpu"]).nanos // 10**6
            arguments.append(f"--cpus={milli / 1000:g}")
    except InvalidQuantity as error:
        raise ConfigProblem(f"limits of container {container.name}: {error}") from error
    return arguments


def _volume(mount: Mount, *, mapped: bool) -> str:
    """Return the argument of a mount. Raises ConfigProblem for a path with a colon."""
    for path in (mount.source, mount.target):
        # The engine would parse the text after a colon as another path, or as options.
        if ":" in path:
            raise ConfigProblem(f'the engine cannot mount "{path}": the path contains a colon')
    options = ["ro"] if mount.read_only else []
    if mapped:
        # Files have the same owners inside the user namespace as outside, if the OCI runtime can.
        options.append("idmap")
    suffix = f":{','.join(options)}" if options else ""
    return f"--volume={mount.source}:{mount.target}{suffix}"


def _host_aliases(pod: NodePod) -> list[str]:
    return [
        f"--add-host={name}:{alias.ip}"
        for alias in pod.spec.host_aliases
        for name in alias.hostnames
    ]


def _logging(log_file: Path, node_side: NodeSide) -> list[str]:
    """Return the arguments that select the log driver."""
    if node_side.is_docker:
        return ["--log-driver=json-file", f"--log-opt=max-size={_LOG_BYTES}"]
    return [
        "--log-driver=k8s-file",
        f"--log-opt=path={log_file}",
        f"--log-opt=max-size={_LOG_BYTES}b",
    ]


def _hostname(pod: NodePod) -> str:
    """Return the Pod's hostname, cut as the kubelet does unless the Pod overrides it."""
    if pod.spec.hostname_override:
        return pod.spec.hostname_override
    return pod.hostname[:_HOSTNAME_LENGTH].rstrip("-.")
