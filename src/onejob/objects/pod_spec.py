"""Pod view of the node: all fields needed to run containers and report their status.

Controllers use the smaller `onejob.objects.pod`; decoding this view costs several times more.
"""

from datetime import datetime
from functools import lru_cache
from typing import Final, Protocol, TypeAlias

import msgspec

from onejob.objects.meta import PODS, Condition, Key, Meta, View, find_condition, key_at
from onejob.objects.pod import Terminated

#: Quantity as written in a manifest: `500m`, `1Gi`, 2.
QuantityText: TypeAlias = str | int | float
PortName: TypeAlias = int | str


class KeySelector(View, frozen=True):
    """A key of a ConfigMap or of a Secret."""

    name: str = ""
    key: str = ""
    optional: bool = False


class FieldSelector(View, frozen=True):
    field_path: str = ""


class ResourceFieldSelector(View, frozen=True):
    container_name: str = ""
    resource: str = ""
    divisor: QuantityText = "0"


class FileKeySelector(View, frozen=True):
    """A variable in a file of an emptyDir volume."""

    volume_name: str = ""
    path: str = ""
    key: str = ""
    optional: bool = False


class EnvSource(View, frozen=True):
    field_ref: FieldSelector | None = None
    resource_field_ref: ResourceFieldSelector | None = None
    config_map_key_ref: KeySelector | None = None
    secret_key_ref: KeySelector | None = None
    file_key_ref: FileKeySelector | None = None


class EnvVar(View, frozen=True):
    name: str = ""
    value: str = ""
    value_from: EnvSource | None = None


class ObjectSelector(View, frozen=True):
    name: str = ""
    optional: bool = False


class EnvFrom(View, frozen=True):
    prefix: str = ""
    config_map_ref: ObjectSelector | None = None
    secret_ref: ObjectSelector | None = None


class VolumeMount(View, frozen=True):
    name: str = ""
    mount_path: str = ""
    sub_path: str = ""
    sub_path_expr: str = ""
    read_only: bool = False


class ExecAction(View, frozen=True):
    command: tuple[str, ...] = ()


class HttpHeader(View, frozen=True):
    name: str = ""
    value: str = ""


class HttpGetAction(View, frozen=True):
    path: str = "/"
    port: PortName = 0
    host: str = ""
    scheme: str = "HTTP"
    http_headers: tuple[HttpHeader, ...] = ()


class TcpSocketAction(View, frozen=True):
    port: PortName = 0
    host: str = ""


class GrpcAction(View, frozen=True):
    port: int = 0
    service: str = ""


class SleepAction(View, frozen=True):
    seconds: int = 0


class Handler(View, frozen=True):
    exec: ExecAction | None = None
    http_get: HttpGetAction | None = None
    tcp_socket: TcpSocketAction | None = None
    sleep: SleepAction | None = None


class Lifecycle(View, frozen=True):
    post_start: Handler | None = None
    pre_stop: Handler | None = None


class Probe(View, frozen=True):
    exec: ExecAction | None = None
    http_get: HttpGetAction | None = None
    tcp_socket: TcpSocketAction | None = None
    grpc: GrpcAction | None = None
    initial_delay_seconds: int = 0
    timeout_seconds: int = 1
    period_seconds: int = 10
    success_threshold: int = 1
    failure_threshold: int = 3
    termination_grace_period_seconds: int | None = None


class ContainerPort(View, frozen=True):
    name: str = ""
    container_port: int = 0


class Resources(View, frozen=True):
    limits: dict[str, QuantityText] = msgspec.field(default_factory=dict)
    requests: dict[str, QuantityText] = msgspec.field(default_factory=dict)


class ResizePolicy(View, frozen=True):
    resource_name: str = ""
    restart_policy: str = "NotRequired"


class Capabilities(View, frozen=True):
    add: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()


class Profile(View, frozen=True):
    """Seccomp or AppArmor profile."""

    type: str = ""
    localhost_profile: str = ""


class Sysctl(View, frozen=True):
    name: str = ""
    value: str = ""


class SecurityContext(View, frozen=True):
    run_as_user: int | None = None
    run_as_group: int | None = None
    run_as_non_root: bool | None = None
    privileged: bool = False
    allow_privilege_escalation: bool | None = None
    read_only_root_filesystem: bool = False
    capabilities: Capabilities | None = None
    seccomp_profile: Profile | None = None
    app_armor_profile: Profile | None = None
    se_linux_options: dict[str, str] = msgspec.field(default_factory=dict)
    proc_mount: str = ""


class PodSecurityContext(View, frozen=True):
    run_as_user: int | None = None
    run_as_group: int | None = None
    run_as_non_root: bool | None = None
    fs_group: int | None = None
    supplemental_groups: tuple[int, ...] = ()
    seccomp_profile: Profile | None = None
    app_armor_profile: Profile | None = None
    se_linux_options: dict[str, str] = msgspec.field(default_factory=dict)
    sysctls: tuple[Sysctl, ...] = ()


class RestartExitCodes(View, frozen=True):
    operator: str = "In"
    values: tuple[int, ...] = ()


class RestartRule(View, frozen=True):
    action: str = "Restart"
    exit_codes: RestartExitCodes | None = None


class Container(View, frozen=True):
    name: str = ""
    image: str = ""
    image_pull_policy: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    working_dir: str = ""
    env: tuple[EnvVar, ...] = ()
    env_from: tuple[EnvFrom, ...] = ()
    ports: tuple[ContainerPort, ...] = ()
    resources: Resources = Resources()
    resize_policy: tuple[ResizePolicy, ...] = ()
    volume_mounts: tuple[VolumeMount, ...] = ()
    liveness_probe: Probe | None = None
    readiness_probe: Probe | None = None
    startup_probe: Probe | None = None
    lifecycle: Lifecycle | None = None
    termination_message_path: str = "/dev/termination-log"
    termination_message_policy: str = "File"
    restart_policy: str = ""
    restart_policy_rules: tuple[RestartRule, ...] = ()
    security_context: SecurityContext = SecurityContext()
    stdin: bool = False
    stdin_once: bool = False
    tty: bool = False


class KeyToPath(View, frozen=True):
    key: str = ""
    path: str = ""
    mode: int | None = None


class EmptyDirVolume(View, frozen=True):
    medium: str = ""
    size_limit: QuantityText = "0"


class HostPathVolume(View, frozen=True):
    path: str = ""
    type: str = ""


class ConfigMapVolume(View, frozen=True):
    name: str = ""
    items: tuple[KeyToPath, ...] = ()
    default_mode: int = 0o644
    optional: bool = False


class SecretVolume(View, frozen=True):
    secret_name: str = ""
    items: tuple[KeyToPath, ...] = ()
    default_mode: int = 0o644
    optional: bool = False


class DownwardFile(View, frozen=True):
    path: str = ""
    field_ref: FieldSelector | None = None
    resource_field_ref: ResourceFieldSelector | None = None
    mode: int | None = None


class DownwardVolume(View, frozen=True):
    items: tuple[DownwardFile, ...] = ()
    default_mode: int = 0o644


class ProjectedItems(View, frozen=True):
    """A ConfigMap or Secret inside a projected volume."""

    name: str = ""
    items: tuple[KeyToPath, ...] = ()
    optional: bool = False


class ProjectedDownward(View, frozen=True):
    items: tuple[DownwardFile, ...] = ()


class ServiceAccountToken(View, frozen=True):
    path: str = ""
    audience: str = ""
    expiration_seconds: int = 3600


class Projection(View, frozen=True):
    config_map: ProjectedItems | None = None
    secret: ProjectedItems | None = None
    downward_api: ProjectedDownward | None = msgspec.field(name="downwardAPI", default=None)
    service_account_token: ServiceAccountToken | None = None


class ProjectedVolume(View, frozen=True):
    sources: tuple[Projection, ...] = ()
    default_mode: int = 0o644


class ImageVolume(View, frozen=True):
    reference: str = ""
    pull_policy: str = ""


class ClaimSource(View, frozen=True):
    """Reference of a Pod's volume to a claim in its namespace."""

    claim_name: str = ""
    read_only: bool = False


class EphemeralSource(View, frozen=True):
    """Claim that is created for one Pod, and deleted with it."""


class Volume(View, frozen=True):
    """Volume with at most one source; without any, its kind is not supported by the node."""

    name: str = ""
    empty_dir: EmptyDirVolume | None = None
    host_path: HostPathVolume | None = None
    config_map: ConfigMapVolume | None = None
    secret: SecretVolume | None = None
    downward_api: DownwardVolume | None = msgspec.field(name="downwardAPI", default=None)
    projected: ProjectedVolume | None = None
    image: ImageVolume | None = None
    persistent_volume_claim: ClaimSource | None = None
    ephemeral: EphemeralSource | None = None


class _MayClaim(Protocol):
    """A view of a Pod's volume."""

    @property
    def name(self) -> str: ...

    @property
    def persistent_volume_claim(self) -> ClaimSource | None: ...

    @property
    def ephemeral(self) -> EphemeralSource | None: ...


def claim_name(pod: str, volume: _MayClaim) -> str:
    """Return the name of the claim behind a Pod's volume; "" if it has none."""
    if volume.persistent_volume_claim is not None:
        return volume.persistent_volume_claim.claim_name
    return f"{pod}-{volume.name}" if volume.ephemeral is not None else ""


class NodeRequirement(View, frozen=True):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class NodeTerm(View, frozen=True):
    match_expressions: tuple[NodeRequirement, ...] = ()
    match_fields: tuple[NodeRequirement, ...] = ()


class NodeTerms(View, frozen=True):
    node_selector_terms: tuple[NodeTerm, ...] = ()


class NodeAffinity(View, frozen=True):
    required: NodeTerms | None = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )


class Affinity(View, frozen=True):
    node_affinity: NodeAffinity | None = None


class Toleration(View, frozen=True):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class SchedulingGate(View, frozen=True):
    name: str = ""


class ReadinessGate(View, frozen=True):
    condition_type: str = ""


class HostAlias(View, frozen=True):
    ip: str = ""
    hostnames: tuple[str, ...] = ()


class SchedulingGroup(View, frozen=True):
    """Membership in a PodGroup; acts with the feature gate GenericWorkload."""

    pod_group_name: str = ""


class NodePodSpec(View, frozen=True):
    node_name: str = ""
    restart_policy: str = "Always"
    termination_grace_period_seconds: int = 30
    active_deadline_seconds: int | None = None
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    #: Added to the running Pod for debugging: started once, and ended with the Pod.
    ephemeral_containers: tuple[Container, ...] = ()
    volumes: tuple[Volume, ...] = ()
    hostname: str = ""
    hostname_override: str = ""
    resources: Resources = Resources()
    host_network: bool = False
    host_users: bool = True
    enable_service_links: bool = True
    host_aliases: tuple[HostAlias, ...] = ()
    host_pid: bool = msgspec.field(name="hostPID", default=False)
    host_ipc: bool = msgspec.field(name="hostIPC", default=False)
    share_process_namespace: bool = False
    service_account_name: str = ""
    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    priority: int = 0
    scheduler_name: str = "default-scheduler"
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    scheduling_group: SchedulingGroup | None = None
    security_context: PodSecurityContext = PodSecurityContext()
    overhead: dict[str, QuantityText] = msgspec.field(default_factory=dict)
    readiness_gates: tuple[ReadinessGate, ...] = ()

    @property
    def claim_volumes(self) -> tuple[Volume, ...]:
        """Volumes that are provided by PersistentVolumeClaims."""
        return tuple(
            volume
            for volume in self.volumes
            if volume.persistent_volume_claim is not None or volume.ephemeral is not None
        )


class ReportedRunning(View, frozen=True):
    started_at: datetime | None = None


class ReportedWaiting(View, frozen=True):
    reason: str = ""


class ReportedState(View, frozen=True):
    waiting: ReportedWaiting | None = None
    running: ReportedRunning | None = None
    terminated: Terminated | None = None


class ReportedContainer(View, frozen=True):
    """Container state in an earlier status."""

    name: str = ""
    restart_count: int = 0
    state: ReportedState = ReportedState()
    last_state: ReportedState = ReportedState()
    resources: Resources | None = None


class NodePodStatus(View, frozen=True):
    phase: str = "Pending"
    reason: str = ""
    start_time: datetime | None = None
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ReportedContainer, ...] = ()
    init_container_statuses: tuple[ReportedContainer, ...] = ()
    ephemeral_container_statuses: tuple[ReportedContainer, ...] = ()
    resources: Resources | None = None


class NodePod(View, frozen=True):
    metadata: Meta = Meta()
    spec: NodePodSpec = NodePodSpec()
    status: NodePodStatus = NodePodStatus()

    @property
    def key(self) -> Key:
        return key_at((PODS, self.metadata.namespace, self.metadata.name))

    @property
    def tokens(self) -> tuple[ServiceAccountToken, ...]:
        """Service account tokens that the Pod's volumes project."""
        return tuple(
            source.service_account_token
            for volume in self.spec.volumes
            if volume.projected is not None
            for source in volume.projected.sources
            if source.service_account_token is not None
        )

    @property
    def uid(self) -> str:
        return self.metadata.uid

    @property
    def terminal(self) -> bool:
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def hostname(self) -> str:
        return self.spec.hostname_override or self.spec.hostname or self.metadata.name

    def condition(self, kind: str) -> Condition | None:
        return find_condition(self.status.conditions, kind)

    def container(self, name: str) -> Container | None:
        spec = self.spec
        for containers in (spec.containers, spec.init_containers, spec.ephemeral_containers):
            for container in containers:
                if container.name == name:
                    return container
        return None


class _EncodedSpec(View, frozen=True):
    metadata: Meta = Meta()
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: NodePodStatus = NodePodStatus()


_read = msgspec.json.Decoder(_EncodedSpec).decode

read_node_pod_spec = msgspec.json.Decoder(NodePodSpec).decode
#: All Pods of a Job share one spec.
_read_shared_spec = lru_cache(maxsize=256)(read_node_pod_spec)
#: Maximum bytes of a spec that is cached.
_MAX_SHARED_BYTES: Final = 16 * 1024


def read_node_pod(document: bytes) -> NodePod:
    """Decode a Pod. Raises ValueError (msgspec.DecodeError) if it is invalid."""
    pod = _read(document)
    spec = bytes(pod.spec)
    read = _read_shared_spec if len(spec) <= _MAX_SHARED_BYTES else read_node_pod_spec
    return NodePod(pod.metadata, read(spec), pod.status)
