"""Pod status written by the node: encoded as is, never read back.

Fields without a default are always written; the API requires them even when zero or false.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Literal, final

import msgspec

from onejob.objects.meta import View
from onejob.objects.pod_spec import QuantityText, Resources


class Waiting(View, frozen=True, kw_only=True):
    reason: str
    message: str = ""


class Running(View, frozen=True, kw_only=True):
    started_at: datetime


class Terminated(View, frozen=True, kw_only=True):
    exit_code: int
    reason: str
    signal: int = 0
    message: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None
    container_id: str = msgspec.field(name="containerID", default="")
    #: onejob extension: measured usage, and the duration; 0 if not measured.
    peak_memory_bytes: int = 0
    cpu_milliseconds: int = 0
    duration_milliseconds: int = 0


class State(View, frozen=True, kw_only=True):
    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None


class ContainerReport(View, frozen=True, kw_only=True):
    name: str
    image: str
    image_id: str = msgspec.field(name="imageID")
    container_id: str = msgspec.field(name="containerID", default="")
    restart_count: int
    ready: bool
    started: bool
    state: State
    last_state: State
    #: Requests that the node has allocated; resources that are in force. Absent before the first
    #: attempt.
    allocated_resources: Mapping[str, QuantityText] = {}
    resources: Resources | None = None


class ConditionReport(View, frozen=True, kw_only=True):
    """Merged into the stored condition of its type, so that a field which is left out stays."""

    type: str
    observed_generation: int = 0
    status: str
    #: None is written as null, and removes what is stored.
    reason: str | None = ""
    message: str | None = ""
    last_transition_time: datetime


class ConditionRemoval(View, frozen=True, kw_only=True):
    """Directive that removes the stored condition of its type."""

    type: str
    patch: Literal["delete"] = msgspec.field(name="$patch")


class IpReport(View, frozen=True, kw_only=True):
    ip: str


class PodReport(View, frozen=True, kw_only=True):
    observed_generation: int = 0
    phase: str
    reason: str = ""
    message: str = ""
    start_time: datetime | None = None
    host_ip: str = msgspec.field(name="hostIP", default="")
    host_ips: tuple[IpReport, ...] = msgspec.field(name="hostIPs", default=())
    pod_ip: str = msgspec.field(name="podIP", default="")
    pod_ips: tuple[IpReport, ...] = msgspec.field(name="podIPs", default=())
    conditions: tuple[ConditionReport | ConditionRemoval, ...]
    #: Those of the Pod itself, if its spec has any.
    allocated_resources: Mapping[str, QuantityText] = {}
    resources: Resources | None = None
    init_container_statuses: tuple[ContainerReport, ...] = ()
    container_statuses: tuple[ContainerReport, ...] = ()
    ephemeral_container_statuses: tuple[ContainerReport, ...] = ()


class PodPrecondition(View, frozen=True):
    uid: str


@final
class PodStatusPatch(View, frozen=True):
    """Strategic merge patch of a Pod's status."""

    metadata: PodPrecondition
    status: PodReport
