"""Enforcement of `resources.limits`: by control groups, or by RLIMIT_DATA of each process."""

import logging
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import msgspec

from onejob.clock import Clock
from onejob.node.options import EnforcedLimits
from onejob.node.process.cgroups import ContainerLimits, ControlGroups, group_name, limits_of
from onejob.node.process.supervisor_client import OUTDATED_SUPERVISOR_MESSAGE
from onejob.node.runtime import AttemptRef
from onejob.objects.pod_spec import Container
from onejob.planning.pod.lifecycle import Exit
from onejob.wire.quantity import Quantity

log = logging.getLogger(__name__)

_OOM_KILLED: Final = "OOMKilled"
_NANO: Final = 10**9


class LimitEnforcer:
    """Limits of containers, and detection of containers that exceeded them."""

    def __init__(
        self, data_dir: Path, clock: Clock, mode: EnforcedLimits, can_join: Callable[[], bool]
    ) -> None:
        """`can_join`: whether the supervisor can put processes into control groups."""
        self._data_dir = data_dir
        self._clock = clock
        self._mode = mode
        self._can_join = can_join
        #: Limits of containers with control groups, by group name.
        self._limited: dict[str, ContainerLimits] = {}

    @cached_property
    def _groups(self) -> ControlGroups:
        """Control groups of this machine, detected on first use."""
        # Detected when the first container needs it: most runs have no limits.
        return ControlGroups.find(self._data_dir, self._clock.now())

    @property
    def problem(self) -> str:
        """Reason why limits are not enforced; "" if they are."""
        if self._mode != "auto":
            return "--enforce-limits off" if self._mode == "off" else ""
        return self._groups.problem if self._can_join() else OUTDATED_SUPERVISOR_MESSAGE

    @property
    def title(self) -> str:
        """One line naming the enforcement mechanism."""
        if self._mode == "rlimit":
            return "memory of each process (RLIMIT_DATA), CPU not limited"
        if problem := self.problem:
            return f"not enforced: {problem}"
        return f"memory and CPU by {self._groups.title}"

    def inherit(self) -> None:
        """Find the groups of containers that have been running since before this server started."""
        if self._mode == "auto" and not self._groups.problem:
            self._limited = dict.fromkeys(self._groups.known(), ContainerLimits())

    def apply(self, request: dict[str, Any], container: Container, ref: AttemptRef) -> None:
        """Add a container's limits to its start request. Raises OSError."""
        limits = limits_of(container)
        if not limits or self._mode == "off":
            return
        if self._mode == "rlimit":
            self._limit_processes(request, limits)
        elif not self.problem:
            request["groups_to_join"] = self._groups.make(ref, limits)
            self._limited[group_name(ref)] = limits

    def join(self, request: dict[str, Any], container: Container, ref: AttemptRef) -> None:
        """Add the limits of a running container to the request of an additional process."""
        if self._mode == "rlimit":
            self._limit_processes(request, limits_of(container))
        elif group_name(ref) in self._limited:
            request["groups_to_join"] = self._groups.files(ref)

    def change_problem(self, container: Container, ref: AttemptRef) -> str:
        """Return why the limits of a running container cannot be changed; "" if they can."""
        if self._mode == "rlimit":
            return "its limits apply to processes when they start (--enforce-limits rlimit)"
        if problem := self.problem:
            return f"limits are not enforced: {problem}"
        if lacking := self._groups.lacking(ref, limits_of(container)):
            return f"it was started without a {lacking} limit, which cannot be added while it runs"
        return ""

    def change(self, container: Container, ref: AttemptRef) -> str:
        """Change the limits of a running container; return why that failed, "" if it did not.

        Blocks while the kernel reclaims memory.
        """
        limits = limits_of(container)
        if problem := self._groups.change(ref, limits):
            return problem
        self._limited[group_name(ref)] = limits
        return ""

    def ended(self, ref: AttemptRef, exit: Exit) -> Exit:
        """Return `exit` with the reason OOMKilled if the container's groups recorded an OOM
        kill."""
        limits = self._limited.pop(group_name(ref), None)
        if limits is None:
            return exit
        usage = self._groups.close(ref)
        exit = msgspec.structs.replace(
            exit,
            peak_bytes=usage.peak_bytes or exit.peak_bytes,
            cpu_milliseconds=usage.cpu_milliseconds or exit.cpu_milliseconds,
        )
        if not usage.oom_kills or exit.code == 0:
            return exit
        message = exit.message or _message(limits, usage.peak_bytes)
        return msgspec.structs.replace(exit, reason=_OOM_KILLED, message=message)

    def forget(self, ref: AttemptRef) -> None:
        """Remove the groups of a container whose exit is unknown."""
        if self._limited.pop(group_name(ref), None) is not None:
            self._groups.close(ref)

    def close(self, *, ended: bool) -> None:
        """Clean up at shutdown; `ended` means that no container is running any more."""
        if "_groups" not in self.__dict__:
            return
        if ended:
            self._groups.remove_all()
        else:
            self._groups.remove_if_empty()

    def _limit_processes(self, request: dict[str, Any], limits: ContainerLimits) -> None:
        """Add the memory limit of each process to the request."""
        if limits.memory_bytes is not None:
            request["limits"] = {"RLIMIT_DATA": limits.memory_bytes}


def _message(limits: ContainerLimits, peak_bytes: int) -> str:
    """Return the message about a container that exceeded its memory limit."""
    if limits.memory_bytes is None:
        return "it exceeded its memory limit"
    limit = Quantity(limits.memory_bytes * _NANO, "binary")
    peak = f" (peak: {Quantity(peak_bytes * _NANO, 'binary')})" if peak_bytes else ""
    return f"it exceeded its memory limit of {limit}{peak}"
