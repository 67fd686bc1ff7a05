"""Container records of the engine, and the attempt states that follow from them.

The engine's own records replace a journal: a container is created before it runs, and is kept with
its exit code until the end of the Pod is stored.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import msgspec

from onejob.node.runtime import AttemptRef, Ended, Lost, RuntimeEvent, Started
from onejob.planning.pod.lifecycle import Exit

DATA_DIR: Final = "onejob.dev/data-dir"
POD: Final = "onejob.dev/pod"
POD_UID: Final = "onejob.dev/pod-uid"
CONTAINER: Final = "onejob.dev/container"
ATTEMPT: Final = "onejob.dev/attempt"
#: Boot ID of the machine when the container was started.
BOOT: Final = "onejob.dev/boot"
MESSAGE_POLICY: Final = "onejob.dev/message-policy"
STOP_SIGNAL: Final = "onejob.dev/stop-signal"

#: Created, but its program was never started.
_UNBORN = frozenset({"created", "configured", "initialized"})
_ALIVE = frozenset({"running", "paused", "stopping", "restarting"})
_ENDED = frozenset({"exited", "stopped"})


@dataclass(frozen=True, slots=True)
class Boot:
    """Current boot of the machine."""

    id: str
    began_at: datetime


@dataclass(frozen=True, slots=True)
class Found:
    """A container in the engine's records."""

    name: str
    ref: AttemptRef
    status: str
    code: int
    oom_killed: bool
    started_at: datetime
    finished_at: datetime
    boot_id: str
    message_policy: str
    stop_signal: str

    @property
    def unborn(self) -> bool:
        """Whether the container has never been started."""
        return self.status in _UNBORN

    @property
    def alive(self) -> bool:
        """Whether the container is running."""
        return self.status in _ALIVE


def judge(found: Found, boot: Boot, now: datetime) -> RuntimeEvent:
    """Return the current state of an attempt whose program was started."""
    if found.alive:
        return Started(found.ref, found.started_at)
    if found.status not in _ENDED or _went_down_with_the_machine(found, boot):
        return Lost(found.ref, now)
    # A container that lost a process to the OOM killer but exited with 0 has succeeded.
    reason = "OOMKilled" if found.oom_killed and found.code else ""
    return Ended(found.ref, Exit(found.code, found.finished_at, found.started_at, reason=reason))


def _went_down_with_the_machine(found: Found, boot: Boot) -> bool:
    """Return whether the container was running when the machine went down. After a restart, an
    engine reports it as exited, with an arbitrary exit code: Podman without an end time, Docker
    with one after the boot."""
    if found.boot_id == boot.id:
        return False
    return found.finished_at < found.started_at or found.finished_at >= boot.began_at


class _State(msgspec.Struct, rename="pascal"):
    started_at: datetime
    finished_at: datetime
    status: str = ""
    exit_code: int = 0
    oom_killed: bool = msgspec.field(name="OOMKilled", default=False)


class _Config(msgspec.Struct, rename="pascal"):
    labels: dict[str, str] | None = None


class _Container(msgspec.Struct, rename="pascal"):
    name: str
    state: _State
    config: _Config


_decode = msgspec.json.Decoder(list[_Container]).decode


def read_containers(document: bytes) -> list[Found]:
    """Parse the output of `container inspect`; containers without a node's labels are omitted."""
    containers = _decode(document) if document.strip() else []
    return [found for container in containers if (found := _read(container)) is not None]


def _read(container: _Container) -> Found | None:
    """Return the attempt that a container's labels describe; None for a container that is not
    ours."""
    labels, state = container.config.labels or {}, container.state
    if POD_UID not in labels:
        return None
    return Found(
        container.name.removeprefix("/"),
        AttemptRef(labels[POD_UID], labels[CONTAINER], int(labels[ATTEMPT])),
        state.status,
        state.exit_code,
        state.oom_killed,
        state.started_at.astimezone(UTC),
        state.finished_at.astimezone(UTC),
        labels.get(BOOT, ""),
        labels.get(MESSAGE_POLICY, ""),
        labels.get(STOP_SIGNAL, ""),
    )


class _Actor(msgspec.Struct, rename="pascal"):
    attributes: dict[str, str] = msgspec.field(default_factory=dict)


class _Event(msgspec.Struct, rename="pascal"):
    """Podman has the name at the top level, Docker among the actor's attributes."""

    name: str = ""
    actor: _Actor = msgspec.field(default_factory=_Actor)


def read_death(line: bytes) -> str:
    """Return the container name of an exit event; "" if the line is not an event."""
    try:
        event = msgspec.json.decode(line, type=_Event)
    except msgspec.DecodeError:
        return ""
    return event.name or event.actor.attributes.get("name", "")
