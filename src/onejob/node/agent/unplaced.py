"""FailedScheduling reports: the condition and event that explain why a Pod is pending.

Each reason is reported once. Reports are rate-limited so that they never slow running Pods down:
only Pods that have been pending for a while are reported, a limited number per second, round-robin
over their owners.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator

import msgspec
from msgspec import Struct

from onejob.client.base import Patch, Result
from onejob.client.events import EventRecorder, about
from onejob.clock import Clock
from onejob.node.agent.writer import Writer
from onejob.objects.pod_spec import NodePod
from onejob.wire.errors import ApiError, Conflict, NotFound

log = logging.getLogger(__name__)

#: Seconds before a Pod that waits for room is reported, as it may be placed at any moment. Pods
#: that do not fit the node are reported without delay.
REPORT_AFTER_SECONDS = 1.0
#: Most reports per period: each costs two writes and delays its Pod's binding.
MAX_REPORTS_PER_PERIOD = 50
_PERIOD_SECONDS = 1.0
#: Seconds between re-evaluations of the reported reasons.
_REVIEW_SECONDS = 300.0

#: Reason why a Pod is pending, by its UID; "" if it is about to be placed.
Why = Callable[[str], str]


class _Waiting(Struct):
    pod: NodePod
    due: float


class PendingPodReporter:
    """Reporter of pending Pods: FailedScheduling Events and the PodScheduled condition.

    Guarantees: a reason is reported only if it differs from the Pod's last reported one. At most
    `MAX_REPORTS_PER_PERIOD` Pods are reported per period by the timer; `report` bypasses the limit.
    Reported reasons are re-evaluated every few minutes and after `review_soon`.
    """

    def __init__(
        self,
        writer: Writer,
        recorder: EventRecorder,
        clock: Clock,
        reasons: Callable[[], Why],
    ) -> None:
        """`reasons` returns a function that explains pending Pods, valid for the moment of the
        call."""
        self._writer = writer
        self._recorder = recorder
        self._clock = clock
        self._reasons = reasons
        #: Pods to report, by the UID of their owner, in order of arrival.
        self._waiting: dict[str, dict[str, _Waiting]] = {}
        #: Reported Pods and their last reason, by UID.
        self._reported: dict[str, tuple[NodePod, str]] = {}
        self._timer: asyncio.Handle | None = None
        #: Loop time at which it fires: uvloop's handle for a timer due at once has no `when()`.
        self._timer_due = 0.0
        self._next_report = 0.0
        self._next_review = 0.0

    def close(self) -> None:
        """Stop reporting."""
        if self._timer is not None:
            self._timer.cancel()

    def add(self, pod: NodePod, misfit: str) -> None:
        """Consider a new or changed pending Pod for a report. `misfit` is the reason why it does
        not fit the node; "" if it only waits for room."""
        uid = pod.uid
        text = self._reported[uid][1] if uid in self._reported else _reported_before(pod)
        if text:
            self._reported[uid] = pod, text
            if misfit in ("", text):
                # Also the echo of this agent's own status write.
                return
        of_owner = self._waiting.setdefault(_owner(pod), {})
        if (known := of_owner.get(uid)) is not None:
            known.pod = pod
            return
        due = asyncio.get_running_loop().time() + (0 if misfit else REPORT_AFTER_SECONDS)
        of_owner[uid] = _Waiting(pod, due)
        self._set_timer(due)

    def review_soon(self) -> None:
        """Re-evaluate reported reasons: the node has changed."""
        if self._reported:
            self._next_review = 0.0
            self._set_timer(0.0)

    def drop(self, pod: NodePod) -> None:
        """Forget a Pod that no longer waits."""
        self._reported.pop(pod.uid, None)
        owner = _owner(pod)
        if (of_owner := self._waiting.get(owner)) is not None:
            of_owner.pop(pod.uid, None)
            if not of_owner:
                del self._waiting[owner]

    def report(self, pod: NodePod, why: str) -> None:
        """Report a Pod now, unless the same reason was reported before."""
        if (known := self._reported.get(pod.uid)) is not None and known[1] == why:
            return
        self._reported[pod.uid] = pod, why
        what = about("v1", "Pod", pod.metadata)
        self._recorder.record(what, "Warning", "FailedScheduling", why)
        condition = {
            "type": "PodScheduled",
            "observedGeneration": pod.metadata.generation,
            "status": "False",
            "reason": "Unschedulable",
            "message": why,
            "lastTransitionTime": self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        body = {"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}}
        patch = Patch(pod.key, msgspec.json.encode(body), subresource="status")
        self._writer.submit(patch, _log_failure, pod.metadata)

    def _set_timer(self, due: float) -> None:
        """Schedule the next report at `due`, but at least a period after the previous one."""
        at = max(due, self._next_report)
        if self._timer is not None:
            if self._timer_due <= at:
                return
            self._timer.cancel()
        self._timer_due = at
        self._timer = asyncio.get_running_loop().call_at(at, self._report)

    def _report(self) -> None:
        """Report the waiting Pods that are due, with their reasons; from time to time, also those
        whose reason has changed."""
        now = asyncio.get_running_loop().time()
        self._timer = None
        why = self._reasons()
        if now >= self._next_review:
            self._requeue_changed(why, now)
        for waiting in self._take_due(now):
            if text := why(waiting.pod.uid):
                self.report(waiting.pod, text)
                self._next_report = now + _PERIOD_SECONDS
        if self._waiting:
            self._set_timer(min(next(iter(pods.values())).due for pods in self._waiting.values()))
        elif self._reported:
            self._set_timer(self._next_review)

    def _take_due(self, now: float) -> Iterator[_Waiting]:
        """Yield due Pods round-robin over owners: the first of each owner, then the second, and so
        on."""
        taken = 0
        owners = deque(self._waiting)
        while owners and taken < MAX_REPORTS_PER_PERIOD:
            owner = owners.popleft()
            uid, first = next(iter(self._waiting[owner].items()))
            if first.due > now:
                continue
            of_owner = self._waiting.pop(owner)
            del of_owner[uid]
            if of_owner:
                # Move the owner to the back, also for the next report.
                self._waiting[owner] = of_owner
                owners.append(owner)
            taken += 1
            yield first

    def _requeue_changed(self, why: Why, now: float) -> None:
        self._next_review = now + _REVIEW_SECONDS
        for uid, (pod, text) in self._reported.items():
            if why(uid) not in ("", text):
                self._waiting.setdefault(_owner(pod), {}).setdefault(uid, _Waiting(pod, now))


def _owner(pod: NodePod) -> str:
    """Return the UID of the Pod's owner, else its own."""
    references = pod.metadata.owner_references
    return references[0].uid if references else pod.uid


def _reported_before(pod: NodePod) -> str:
    """Return the reason that an earlier run of the agent reported for the Pod, or ""."""
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            return condition.message
    return ""


def _log_failure(result: Result) -> None:
    if isinstance(result, ApiError):
        # A Pod that was changed or deleted meanwhile is reconciled anyway.
        expected = isinstance(result, Conflict | NotFound)
        log.log(logging.INFO if expected else logging.WARNING, "%s", result)
