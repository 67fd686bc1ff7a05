"""Pod view of the controllers. The node agent reads more fields: see `onejob.objects.pod_spec`."""

from collections.abc import Callable
from datetime import datetime

import msgspec

from onejob.objects.meta import PODS, Condition, Key, Meta, View, condition_is_true, key_at


class ContainerSpec(View, frozen=True):
    """Fields of a container that identify sidecars."""

    name: str = ""
    restart_policy: str = ""


class PodSpec(View, frozen=True):
    node_name: str = ""
    restart_policy: str = ""
    hostname: str = ""
    containers: tuple[ContainerSpec, ...] = ()
    init_containers: tuple[ContainerSpec, ...] = ()
    ttl_seconds_after_finished: int | None = None


class Terminated(View, frozen=True):
    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    message: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None
    #: onejob extension: measured usage, and the duration; 0 if not measured.
    peak_memory_bytes: int = 0
    cpu_milliseconds: int = 0
    duration_milliseconds: int = 0


class ContainerState(View, frozen=True):
    #: `waiting` and `running` matter to controllers only by their presence.
    terminated: Terminated | None = None


class ContainerStatus(View, frozen=True):
    name: str = ""
    restart_count: int = 0
    ready: bool = False
    state: ContainerState = ContainerState()


class PodStatus(View, frozen=True):
    phase: str = ""
    reason: str = ""
    start_time: datetime | None = None
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()


class Pod(View, frozen=True):
    metadata: Meta = Meta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def key(self) -> Key:
        return key_at((PODS, self.metadata.namespace, self.metadata.name))

    @property
    def phase(self) -> str:
        return self.status.phase

    @property
    def terminal(self) -> bool:
        """True if the phase is Succeeded or Failed, and so will not change any more."""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def active(self) -> bool:
        """True if the Pod has neither ended nor is being deleted."""
        # Inlined instead of `terminal`: evaluated for every change of every Pod.
        return (
            self.status.phase not in ("Succeeded", "Failed")
            and self.metadata.deletion_timestamp is None
        )

    @property
    def terminating(self) -> bool:
        return not self.terminal and self.metadata.deletion_timestamp is not None

    @property
    def ready(self) -> bool:
        return condition_is_true(self.status.conditions, "Ready")


#: No wrapper function: every change of a Pod is decoded.
read_pod: Callable[[bytes], Pod] = msgspec.json.Decoder(Pod).decode
