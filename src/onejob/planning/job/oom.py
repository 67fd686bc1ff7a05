"""onejob.dev/oom-memory-factor: more memory for the replacement of an OOM-killed Pod.

The number of OOM kills in a row is stored on the Pods, in an annotation, so that the feature needs
no other state and continues after a restart or under another controller.
"""

import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec
from msgspec import Struct

from onejob.objects.job import Job
from onejob.objects.pod import Pod
from onejob.planning.counts import counted
from onejob.planning.job.pod_facts import completion_index, sidecar_names
from onejob.planning.names import (
    OOM_MEMORY_FACTOR_ANNOTATION,
    OOM_MEMORY_MAX_ANNOTATION,
    OOM_RETRIES,
)
from onejob.planning.pod.restart_policy import restart_policy_of
from onejob.wire.quantity import InvalidQuantity, Quantity, parse_quantity

OOM_KILLED: Final = "OOMKilled"
MAX_FACTOR: Final = 100
#: Upper bound of the stored count. A factor of 100 exceeds the largest quantity long before.
_MAX_RETRIES: Final = 64
_THOUSAND: Final = 1000
#: Largest memory quantity, in nano-units, rounded down to whole KiB.
_MAX_MEMORY: Final = 2**63 // 1024 * 1024 * 10**9 - 1024 * 10**9
_FACTOR: Final = re.compile(r"([0-9]{1,3})(?:\.([0-9]{1,3}))?", re.ASCII)


class MemoryGrowth(Struct, frozen=True):
    """Memory multiplier for a Pod: `factor` to the power of `retries`, applied to its template."""

    #: Number of preceding Pods that were OOM-killed, in a row.
    retries: int
    #: In thousandths.
    factor: int
    maximum: Quantity | None = None

    def of(self, amount: Quantity) -> Quantity:
        """Return the grown amount; at least `amount`, even if that exceeds the maximum."""
        nanos = -(-amount.nanos * self.factor**self.retries // _THOUSAND**self.retries)
        # Round up to bytes, or KiB if the template uses binary units, but not beyond the maximum.
        step = (1024 if amount.format == "binary" else 1) * 10**9
        most = _MAX_MEMORY if self.maximum is None else self.maximum.nanos
        nanos = min(-(-nanos // step), most // step) * step
        return Quantity(max(nanos, amount.nanos), amount.format)


def read_factor(text: str) -> int | None:
    """Parse the factor, in thousandths; None unless it is a number above 1 and at most 100."""
    match = _FACTOR.fullmatch(text)
    if match is None:
        return None
    factor = int(match[1]) * _THOUSAND + int((match[2] or "").ljust(3, "0"))
    return factor if _THOUSAND < factor <= MAX_FACTOR * _THOUSAND else None


def read_maximum(text: str) -> Quantity | None:
    """Parse the maximum; None if the text is not a positive quantity."""
    try:
        amount = parse_quantity(text)
    except InvalidQuantity:
        return None
    return amount if amount.nanos > 0 else None


def oom_factor(job: Job) -> int | None:
    """Return the Job's factor in thousandths; None if memory does not grow.

    With restartPolicy OnFailure containers restart in place, so there is no new Pod that could get
    more.
    """
    text = job.metadata.annotations.get(OOM_MEMORY_FACTOR_ANNOTATION)
    if text is None or restart_policy_of(job) == "OnFailure":
        return None
    return read_factor(text)


class OomHistory:
    """Consecutive OOM kills per Job, or per index of an Indexed Job."""

    __slots__ = ("_factor", "_indexed", "_maximum", "_retries")

    def __init__(self, job: Job, pods: Iterable[Pod]) -> None:
        self._factor = oom_factor(job)
        self._indexed = job.indexed
        maximum = job.metadata.annotations.get(OOM_MEMORY_MAX_ANNOTATION)
        self._maximum = None if maximum is None else read_maximum(maximum)
        self._retries: dict[int | None, int] = {}
        if self._factor is not None:
            for pod in pods:
                index = completion_index(pod) if self._indexed else None
                retries = retries_after(pod)
                if retries > self._retries.get(index, 0):
                    self._retries[index] = retries

    def growth(self, index: int | None) -> MemoryGrowth | None:
        """Return the growth for the next Pod of this index; None if its memory stays unchanged."""
        retries = self._retries.get(index, 0)
        if self._factor is None or not retries:
            return None
        return MemoryGrowth(retries, self._factor, self._maximum)

    @property
    def note(self) -> str | None:
        """Human-readable note for `onejob why`; None if no memory grows."""
        if not self._retries or self._factor is None:
            return None
        most = max(self._retries.values())
        grown = MemoryGrowth(most, self._factor).of(Quantity(10**9 * _THOUSAND)).whole / _THOUSAND
        limit = "" if self._maximum is None else f", at most {self._maximum}"
        where = f" of {counted(len(self._retries), 'index', 'indexes')}" if self._indexed else ""
        return (
            f"Pods{where} ran out of memory {counted(most, 'time')} in a row: the next get up to "
            f"{grown:g} times the template's memory{limit} ({OOM_MEMORY_FACTOR_ANNOTATION})"
        )


def retries_after(pod: Pod) -> int:
    """Return the OOM count to annotate on the Pod that replaces this one."""
    text = pod.metadata.annotations.get(OOM_RETRIES, "")
    retries = int(text) if text.isascii() and text.isdigit() and len(text) <= 2 else 0
    return min(retries + ran_out_of_memory(pod), _MAX_RETRIES)


def ran_out_of_memory(pod: Pod) -> bool:
    """Return whether the Pod failed because a container was OOM-killed.

    Sidecars do not count: no failure of theirs makes a Pod fail.
    """
    if pod.phase != "Failed":
        return False
    sidecars = sidecar_names(pod)
    return any(
        status.state.terminated is not None
        and status.state.terminated.reason == OOM_KILLED
        and status.state.terminated.exit_code != 0
        and status.name not in sidecars
        for status in (*pod.status.init_container_statuses, *pod.status.container_statuses)
    )


def grown_document(document: bytes, growth: MemoryGrowth) -> bytes:
    """Return the Pod document with more memory.

    Requests grow along with limits, so that the Pod is scheduled by the memory it may use.
    """
    pod: dict[str, Any] = msgspec.json.decode(document)
    spec = pod["spec"]
    annotations = pod["metadata"].setdefault("annotations", {})
    annotations[OOM_RETRIES] = str(growth.retries)
    for owner in (spec, *(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        _grow_resources(owner.get("resources") or {}, growth)
    return msgspec.json.encode(pod)


def _grow_resources(resources: dict[str, Any], growth: MemoryGrowth) -> None:
    """Raise the memory of a container in place; the request stays within the limit."""
    limit: Quantity | None = None
    for kind in ("limits", "requests"):
        amounts = resources.get(kind) or {}
        if "memory" in amounts:
            grown = growth.of(parse_quantity(amounts["memory"]))
            if limit is not None and grown.nanos > limit.nanos:
                # A request in KiB is rounded up further than a limit in bytes; cap it at the limit.
                grown = limit
            amounts["memory"] = str(grown)
            limit = grown
