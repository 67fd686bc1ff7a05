"""Node conditions: status, transition times, and events about transitions."""

from collections.abc import Callable, Mapping
from datetime import datetime

import msgspec
from msgspec import Struct

from onejob.objects.meta import View

_TIME = "%Y-%m-%dT%H:%M:%SZ"
#: Reasons of the kubelet's events, where it has one: (now true, now false).
_EVENTS = {
    "MemoryPressure": ("NodeHasInsufficientMemory", "NodeHasSufficientMemory"),
    "DiskPressure": ("NodeHasDiskPressure", "NodeHasNoDiskPressure"),
    "PIDPressure": ("NodeHasInsufficientPID", "NodeHasSufficientPID"),
    "Ready": ("NodeReady", "NodeNotReady"),
}


class NodeCondition(msgspec.Struct, frozen=True):
    """A finding about the node, reported by the runtime or the agent."""

    type: str
    status: bool
    reason: str
    message: str


class ConditionEvent(Struct, frozen=True):
    """Content of the event about a condition transition: event type, reason and message."""

    type: str
    reason: str
    message: str


class _Reported(View, frozen=True):
    type: str = ""
    status: str = ""
    last_transition_time: datetime | None = None


class _ReportedStatus(View, frozen=True):
    conditions: tuple[_Reported, ...] = ()


class _ReportedNode(View, frozen=True):
    status: _ReportedStatus = _ReportedStatus()


_read_reported = msgspec.json.Decoder(_ReportedNode).decode


class _Entry(Struct):
    condition: NodeCondition
    since: datetime


_SOUND = (
    NodeCondition("MemoryPressure", False, "EnoughMemory", "reported by the node agent of onejob"),
    NodeCondition("DiskPressure", False, "EnoughDisk", "reported by the node agent of onejob"),
    NodeCondition("PIDPressure", False, "EnoughPIDs", "reported by the node agent of onejob"),
    NodeCondition("Ready", True, "AgentReady", "reported by the node agent of onejob"),
)


class NodeConditions:
    """Current conditions of a Node, in the order of first use.

    `changed` is called when the Node's status has to be written; its argument is an event if the
    status of a condition has changed, else None.
    """

    def __init__(
        self, now: Callable[[], datetime], changed: Callable[[ConditionEvent | None], None]
    ) -> None:
        self._now = now
        self._changed = changed
        began = now()
        self._entries = {condition.type: _Entry(condition, began) for condition in _SOUND}
        #: Conditions that `clear` resets to a default of their own.
        self._defaults: Mapping[str, NodeCondition] = {c.type: c for c in _SOUND}

    def inherit(self, node: bytes) -> None:
        """Adopt the transition times that an earlier run wrote, for conditions whose status is
        still the same."""
        for found in _read_reported(node).status.conditions:
            entry = self._entries.get(found.type)
            if entry is None or found.last_transition_time is None:
                continue
            if found.status == _text(entry.condition.status):
                entry.since = found.last_transition_time

    def set(self, condition: NodeCondition) -> None:
        """Set a condition; its transition time and an Event change only with its status."""
        entry = self._entries.get(condition.type)
        if entry is not None and entry.condition == condition:
            return
        if entry is not None and entry.condition.status == condition.status:
            entry.condition = condition
            self._changed(None)
            return
        self._entries[condition.type] = _Entry(condition, self._now())
        # A condition that first appears with its default status needs no event.
        self._changed(_event(condition) if entry is not None or condition.status else None)

    def clear(self, type_: str, message: str) -> None:
        """Reset a condition that `set` made true; do nothing if it is not true."""
        entry = self._entries.get(type_)
        if entry is None or not entry.condition.status:
            return
        default = self._defaults.get(type_)
        over = default or NodeCondition(type_, False, "NoPressure", message)
        self.set(msgspec.structs.replace(over, message=message))

    def is_set(self, type_: str) -> bool:
        entry = self._entries.get(type_)
        return entry is not None and entry.condition.status

    def documents(self) -> list[dict[str, str]]:
        """Return the conditions of the Node's status, with a new heartbeat time."""
        heartbeat = self._now().strftime(_TIME)
        return [
            {
                "type": entry.condition.type,
                "status": _text(entry.condition.status),
                "reason": entry.condition.reason,
                "message": entry.condition.message,
                "lastHeartbeatTime": heartbeat,
                "lastTransitionTime": entry.since.strftime(_TIME),
            }
            for entry in self._entries.values()
        ]


def _event(condition: NodeCondition) -> ConditionEvent:
    """Return the Event about a transition."""
    bad = condition.status != (condition.type == "Ready")
    names = _EVENTS.get(condition.type)
    reason = names[0 if condition.status else 1] if names is not None else condition.reason
    text = f"{condition.type} is {_text(condition.status)}: {condition.message}"
    return ConditionEvent("Warning" if bad else "Normal", reason, text)


def _text(status: bool) -> str:
    """Return a condition status."""
    return "True" if status else "False"
