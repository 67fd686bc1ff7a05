"""onejob.dev/oom-memory-factor: a Pod that replaces one killed for lack of memory gets more of it.

How often that has happened is carried by the Pods themselves, in an annotation, so that nothing has
to be remembered: a restart, or another controller, goes on from there.
"""

import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec
from msgspec import Struct

from onejob.objects.job import Job
from onejob.objects.pod import Pod
from onejob.planning.counts import counted
from onejob.planning.job.pod_facts import completion_index
from onejob.planning.names import (
    OOM_MEMORY_FACTOR_ANNOTATION,
    OOM_MEMORY_MAX_ANNOTATION,
    OOM_RETRIES,
)
from onejob.planning.pod.restart_policy import restart_policy_of
from onejob.wire.quantity import BadQuantity, Quantity, parse_quantity

OOM_KILLED: Final = "OOMKilled"
LARGEST_FACTOR: Final = 100
#: A hundredfold factor passes the largest quantity there is long before.
_MOST_RETRIES: Final = 64
_THOUSAND: Final = 1000
#: What a quantity can be, in nano-units and whole KiB.
_LARGEST_MEMORY: Final = 2**63 // 1024 * 1024 * 10**9 - 1024 * 10**9
_FACTOR: Final = re.compile(r"([0-9]{1,3})(?:\.([0-9]{1,3}))?", re.ASCII)


class MemoryGrowth(Struct, frozen=True):
    """What Pods get more of than their template says: `factor` to the power of `retries`."""

    #: How many Pods before were killed for lack of memory, one after the other.
    retries: int
    #: In thousandths.
    factor: int
    maximum: Quantity | None = None

    def of(self, amount: Quantity) -> Quantity:
        """Never less than `amount`, which may be above the maximum already."""
        nanos = -(-amount.nanos * self.factor**self.retries // _THOUSAND**self.retries)
        # In whole bytes, or KiB where the template is written so: up, but not beyond the maximum.
        step = (1024 if amount.format == "binary" else 1) * 10**9
        most = _LARGEST_MEMORY if self.maximum is None else self.maximum.nanos
        nanos = min(-(-nanos // step), most // step) * step
        return Quantity(max(nanos, amount.nanos), amount.format)


def read_factor(text: str) -> int | None:
    """In thousandths; None if the text is no number above 1, and at most 100."""
    match = _FACTOR.fullmatch(text)
    if match is None:
        return None
    factor = int(match[1]) * _THOUSAND + int((match[2] or "").ljust(3, "0"))
    return factor if _THOUSAND < factor <= LARGEST_FACTOR * _THOUSAND else None


def read_maximum(text: str) -> Quantity | None:
    """None if the text is no amount of memory."""
    try:
        amount = parse_quantity(text)
    except BadQuantity:
        return None
    return amount if amount.nanos > 0 else None


def oom_factor(job: Job) -> int | None:
    """In thousandths; None: memory does not grow. Where containers are restarted in place there is
    no new Pod that could get more."""
    text = job.metadata.annotations.get(OOM_MEMORY_FACTOR_ANNOTATION)
    if text is None or restart_policy_of(job) == "OnFailure":
        return None
    return read_factor(text)


class OomHistory:
    """How often in a row Pods of a Job, or of each of its indexes, ran out of memory."""

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
        """For the next Pod of this index."""
        retries = self._retries.get(index, 0)
        if self._factor is None or not retries:
            return None
        return MemoryGrowth(retries, self._factor, self._maximum)

    @property
    def note(self) -> str | None:
        """For people, if anything grows."""
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
    """What the Pod after this one is to carry."""
    text = pod.metadata.annotations.get(OOM_RETRIES, "")
    retries = int(text) if text.isascii() and text.isdigit() and len(text) <= 2 else 0
    return min(retries + ran_out_of_memory(pod), _MOST_RETRIES)


def ran_out_of_memory(pod: Pod) -> bool:
    """Whether it failed because a container was killed for lack of memory."""
    if pod.phase != "Failed":
        return False
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    ends = (status.state.terminated for status in statuses)
    return any(end is not None and end.reason == OOM_KILLED for end in ends)


def grown_document(document: bytes, growth: MemoryGrowth) -> bytes:
    """The Pod with more memory. Requests grow with limits: it is placed by what it may use."""
    pod: dict[str, Any] = msgspec.json.decode(document)
    spec = pod["spec"]
    annotations = pod["metadata"].setdefault("annotations", {})
    annotations[OOM_RETRIES] = str(growth.retries)
    for owner in (spec, *(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        _grow(owner.get("resources") or {}, growth)
    return msgspec.json.encode(pod)


def _grow(resources: dict[str, Any], growth: MemoryGrowth) -> None:
    limit: Quantity | None = None
    for kind in ("limits", "requests"):
        amounts = resources.get(kind) or {}
        if "memory" in amounts:
            grown = growth.of(parse_quantity(amounts["memory"]))
            if limit is not None and grown.nanos > limit.nanos:
                # A request in KiB was rounded up, and a limit in bytes less so.
                grown = limit
            amounts["memory"] = str(grown)
            limit = grown
