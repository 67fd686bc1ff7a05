"""One Job, its Pods and a controller in memory, with everything that goes wrong in between.

The server keeps documents and the rules that matter to tracking: optimistic locking, finalizers
that hold a deleted Pod, and upstream's checks of a Job status. The driver plays the controller:
it sees only what its cache has been shown, loses its memory when restarted, and its writes can
be made to fail.
"""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import msgspec

from onejob.objects.job import Job, read_job
from onejob.objects.pod import Pod, read_pod
from onejob.planning.job.backoff import NO_FAILURES, BackoffRecord
from onejob.planning.job.counting import Census
from onejob.planning.job.indexes import parse_indexes
from onejob.planning.job.plan import (
    Observed,
    Plan,
    PodDeletion,
    PodOutcomes,
    RemovalOutcomes,
    StatusWrite,
)
from onejob.planning.job.planner import account, plan_job, settle
from onejob.planning.job.pod_template import PodFactory
from onejob.planning.job.settings import Settings
from onejob.planning.job.status import status_patch, with_status
from onejob.planning.names import FAILURE_COUNT_ANNOTATION, INDEX_ANNOTATION, TRACKING
from tests.planning.build import NOON, stamp

Document = dict[str, Any]


class WriteFailed(Exception):
    """The server refused, or could not be reached."""


class Crash(BaseException):
    """The controller was killed. Not an Exception: no handler of the driver may catch it."""


class Server:
    def __init__(self, job: Document) -> None:
        self.job = job
        self.pods: dict[str, Document] = {}
        self.revision = 1
        self.now = NOON
        self.made = 0
        #: Every UID that was ever listed in a status, by list.
        self.listed: dict[str, set[str]] = {"succeeded": set(), "failed": set()}
        #: UIDs freed before deletion, so that they never count.
        self.let_go: set[str] = set()
        #: Indexes with a success that must be counted.
        self.successes: set[int] = set()
        #: For each Pod made with a failure count: its index and that count.
        self.failure_counts: list[tuple[int, int]] = []
        #: The completions in force when a verdict was first recorded.
        self.size_at_verdict: int | None = None
        #: Last state of each Pod when it lost its finalizer to tracking.
        self.freed: dict[str, Document] = {}

    # What the controller does.

    def create_pod(self, document: bytes, planned_for: Job) -> int:
        pod: Document = msgspec.json.decode(document)
        self.made += 1
        metadata = pod["metadata"]
        metadata["uid"] = f"pod-{self.made}"
        metadata["name"] = f"{metadata['generateName']}{self.made}"
        metadata["creationTimestamp"] = stamp(self.now)
        pod["status"] = {"phase": "Pending"}
        self.pods[metadata["uid"]] = pod
        annotations = metadata.get("annotations", {})
        if FAILURE_COUNT_ANNOTATION in annotations:
            index, count = annotations[INDEX_ANNOTATION], annotations[FAILURE_COUNT_ANNOTATION]
            self.failure_counts.append((int(index), int(count)))
        self._check_crowding(pod, planned_for)
        return self._bump(pod)

    def delete_pod(self, uid: str) -> int:
        pod = self._fresh(uid)
        if pod is None:
            return self.revision
        pod["metadata"].setdefault("deletionTimestamp", stamp(self.now))
        pod["metadata"].setdefault("deletionGracePeriodSeconds", 0)
        revision = self._bump(pod)
        self._sweep(uid)
        return revision

    def remove_finalizer(self, uid: str, *, let_go: bool) -> int:
        pod = self._fresh(uid)
        if pod is None:
            return self.revision
        held = TRACKING in pod["metadata"]["finalizers"]
        if held and let_go:
            self.let_go.add(uid)
        elif held:
            self.freed[uid] = copy.deepcopy(pod)
        pod["metadata"]["finalizers"] = []
        revision = self._bump(pod)
        self._sweep(uid)
        return revision

    def patch_status(self, patch: bytes) -> int:
        body = msgspec.json.decode(patch)
        if body["metadata"]["resourceVersion"] != self.job["metadata"]["resourceVersion"]:
            raise WriteFailed("conflict")
        before = self.job["status"]
        after = merge(before, body["status"])
        check_status(self.job, before, after)
        if {"Complete", "Failed"} & set(_true_conditions(after)):
            running = self.pods_in("Pending", "Running")
            assert not running, f"called finished while these run: {running}"
        verdicts = {"SuccessCriteriaMet", "FailureTarget"} & set(_true_conditions(after))
        if verdicts and self.size_at_verdict is None:
            self.size_at_verdict = self.job["spec"].get("completions")
        for kind, uids in after.get("uncountedTerminatedPods", {}).items():
            self.listed[kind].update(uids)
        self.job = {**self.job, "status": after, "metadata": dict(self.job["metadata"])}
        return self._bump(self.job)

    # What happens by itself, or by others.

    def run_pod(self, uid: str) -> None:
        pod = self._fresh(uid)
        assert pod is not None, f"no such Pod: {uid}"
        pod["status"] = {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        self._bump(pod)

    def end_pod(self, uid: str, phase: str, exit_code: int = 0) -> None:
        pod = self._fresh(uid)
        assert pod is not None, f"no such Pod: {uid}"
        terminated = {"exitCode": exit_code, "finishedAt": stamp(self.now)}
        pod["status"] = {
            "phase": phase,
            "containerStatuses": [{"name": "c", "state": {"terminated": terminated}}],
        }
        index = pod["metadata"].get("annotations", {}).get(INDEX_ANNOTATION)
        if phase == "Succeeded" and index is not None and pod["metadata"]["finalizers"]:
            self.successes.add(int(index))
        self._bump(pod)
        self._sweep(uid)

    def edit_job(self, **spec: Any) -> None:
        generation = self.job["metadata"]["generation"] + 1
        self.job = {
            **self.job,
            "spec": {**self.job["spec"], **spec},
            "metadata": {**self.job["metadata"], "generation": generation},
        }
        self._bump(self.job)

    # What there is.

    def pods_in(self, *phases: str, deleting: bool | None = None) -> list[str]:
        return [
            uid
            for uid, pod in self.pods.items()
            if pod["status"]["phase"] in phases
            and (deleting is None or deleting == ("deletionTimestamp" in pod["metadata"]))
        ]

    @property
    def view(self) -> Job:
        return read_job(msgspec.json.encode(self.job))

    def _fresh(self, uid: str) -> Document | None:
        """A copy in the old one's place, for caches still show the old one."""
        if uid in self.pods:
            pod = self.pods[uid]
            self.pods[uid] = {**pod, "metadata": dict(pod["metadata"])}
        return self.pods.get(uid)

    def _bump(self, document: Document) -> int:
        self.revision += 1
        document["metadata"]["resourceVersion"] = str(self.revision)
        return self.revision

    def _sweep(self, uid: str) -> None:
        """A deleted Pod goes once it has ended and nobody holds it."""
        pod = self.pods[uid]
        ended = pod["status"]["phase"] in ("Succeeded", "Failed", "Pending")
        if "deletionTimestamp" in pod["metadata"] and ended and not pod["metadata"]["finalizers"]:
            del self.pods[uid]

    def _check_crowding(self, created: Document, planned_for: Job) -> None:
        """The promises about how much runs at once, at the moment they could be broken."""
        live = self.pods_in("Pending", "Running")
        only_failed = planned_for.spec.pod_replacement_policy == "Failed"
        rivals = live if only_failed else self.pods_in("Pending", "Running", deleting=False)
        parallelism = planned_for.spec.parallelism or 0
        assert len(rivals) <= parallelism, f"{len(rivals)} Pods run, {parallelism} may"
        index = created["metadata"].get("annotations", {}).get(INDEX_ANNOTATION)
        if index is not None:
            same = [
                uid
                for uid in rivals
                if self.pods[uid]["metadata"]["annotations"][INDEX_ANNOTATION] == index
            ]
            assert len(same) == 1, f"{len(same)} Pods work on index {index}"


@dataclass
class Driver:
    """A controller with a cache, a memory and bad luck."""

    server: Server
    settings: Settings = field(default_factory=Settings)
    #: Calls after which the controller is killed; None: never.
    crash_after: int | None = None
    #: Numbers of coming calls that fail (1 is the next).
    failing: set[int] = field(default_factory=set)
    calls: int = 0
    _job: Document = field(init=False)
    _pods: dict[str, Document] = field(init=False)
    _job_seen: int = field(init=False)
    _pods_seen: int = field(init=False)
    _views: dict[tuple[str, str], Pod] = field(default_factory=dict)
    _written: int = 0
    _removing: set[str] = field(default_factory=set)
    _backoff: BackoffRecord = NO_FAILURES
    _finish_pending: bool = False

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Forget everything and list anew."""
        self._written = 0
        self._removing = set()
        self._backoff = NO_FAILURES
        self._finish_pending = False
        self.crash_after = None
        self.failing = set()
        self.observe()

    def observe(self) -> None:
        """Let both watches catch up."""
        self.observe_job()
        self.observe_pods()

    def observe_job(self) -> None:
        self._job = self.server.job
        self._job_seen = self.server.revision

    def observe_pods(self) -> None:
        self._pods = dict(self.server.pods)
        self._pods_seen = self.server.revision
        self._removing = {
            uid
            for uid in self._removing
            if uid in self._pods and TRACKING in self._pods[uid]["metadata"]["finalizers"]
        }

    @property
    def job(self) -> Job:
        return read_job(msgspec.json.encode(self._job))

    def plan(self) -> Plan:
        caught_up = min(self._job_seen, self._pods_seen) >= self._written
        observed = Observed(
            caught_up=caught_up,
            removing=frozenset(self._removing),
            backoff=self._backoff,
            finish_pending=self._finish_pending,
        )
        pods = [self._view(pod) for pod in self._pods.values() if matters(pod)]
        return plan_job(self.job, Census(pods), observed, self.server.now, self.settings)

    def sync(self) -> str | None:
        """One sync; the error that calls for a retry, if any."""
        plan = self.plan()
        if plan.skipped is not None:
            return None
        accounting = account(plan, self._change_pods(plan))
        try:
            job = self._write(plan.job, accounting.write)
        except WriteFailed as error:
            return str(error)
        removed = frozenset(
            removal.uid for removal in accounting.removals if self._remove(removal.uid)
        )
        failed = len(removed) < len(accounting.removals)
        settlement = settle(
            accounting, RemovalOutcomes(removed, "could not remove" if failed else None)
        )
        try:
            self._write(job, settlement.write)
        except WriteFailed as error:
            return str(error)
        return settlement.error

    def _view(self, pod: Document) -> Pod:
        key = pod["metadata"]["uid"], pod["metadata"]["resourceVersion"]
        if key not in self._views:
            self._views[key] = read_pod(msgspec.json.encode(pod))
        return self._views[key]

    def _change_pods(self, plan: Plan) -> PodOutcomes:
        deleted = {deletion.uid for deletion in plan.deletions if self._delete(deletion)}
        stamps = PodFactory(plan.job, self.settings)
        created = failures = 0
        for seed in plan.creations:
            document = stamps.document(seed)
            try:
                self._call(partial(self.server.create_pod, document, plan.job))
            except WriteFailed:
                failures += 1
                break
            created += 1
        failed = failures or len(deleted) < len(plan.deletions)
        return PodOutcomes(frozenset(deleted), created, failures, "pods" if failed else None)

    def _delete(self, deletion: PodDeletion) -> bool:
        try:
            if deletion.remove_finalizer_first:
                self._call(lambda: self.server.remove_finalizer(deletion.uid, let_go=True))
            self._call(lambda: self.server.delete_pod(deletion.uid))
        except WriteFailed:
            return False
        return True

    def _remove(self, uid: str) -> bool:
        self._removing.add(uid)
        try:
            self._call(lambda: self.server.remove_finalizer(uid, let_go=False))
        except WriteFailed:
            self._removing.discard(uid)
            return False
        return True

    def _write(self, job: Job, write: StatusWrite | None) -> Job:
        """The Job as the server has it afterwards."""
        if write is None:
            return job
        patch = status_patch(job, write.status)
        revision = self._call(lambda: self.server.patch_status(patch))
        if write.backoff is not None:
            self._backoff = write.backoff
        self._finish_pending = self._finish_pending or write.finishes
        return with_status(job, write.status, str(revision))

    def _call(self, effect: Callable[[], int]) -> int:
        self.calls += 1
        if self.calls in self.failing:
            raise WriteFailed("injected")
        revision = effect()
        self._written = max(self._written, revision)
        if self.crash_after is not None and self.calls >= self.crash_after:
            raise Crash
        return revision


def matters(pod: Document) -> bool:
    """What a census may not leave out."""
    ended = pod["status"]["phase"] in ("Succeeded", "Failed")
    return not ended or bool(pod["metadata"]["finalizers"])


def merge(document: Document, patch: Document) -> Document:
    """RFC 7386."""
    merged = dict(document)
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, dict) and isinstance(merged.get(name), dict):
            merged[name] = merge(merged[name], value)
        elif isinstance(value, dict):
            merged[name] = merge({}, value)
        else:
            merged[name] = value
    return merged


def check_status(job: Document, before: Document, after: Document) -> None:
    """The server's rules for a Job status, as far as a controller could break them."""
    was, is_ = set(_true_conditions(before)), set(_true_conditions(after))
    for terminal in ("Complete", "Failed", "FailureTarget", "SuccessCriteriaMet"):
        assert terminal not in was or terminal in is_, f"{terminal} was taken back"
    assert not {"Complete", "Failed"} <= is_, "both Complete and Failed"
    assert not {"SuccessCriteriaMet", "FailureTarget"} <= is_, "both verdicts"
    assert "Complete" not in is_ or "SuccessCriteriaMet" in is_, "Complete without its criteria"
    assert "Failed" not in is_ or "FailureTarget" in is_, "Failed without its target"
    elastic = job["spec"]["completionMode"] == "Indexed"
    assert elastic or after.get("succeeded", 0) >= before.get("succeeded", 0), "succeeded shrank"
    assert after.get("failed", 0) >= before.get("failed", 0), "failed shrank"
    assert after["ready"] <= after.get("active", 0), "more ready than active"
    uncounted = after.get("uncountedTerminatedPods", {})
    listed = [uid for uids in uncounted.values() for uid in uids]
    assert len(listed) == len(set(listed)), "a UID is listed twice"
    assert len(listed) <= 502, "the lists outgrew their cap"
    if is_ & {"Complete", "Failed"}:
        assert not was & {"Complete", "Failed"}, "a finished Job was written to"
        assert not after.get("active"), "finished with active Pods"
        assert not after.get("terminating"), "finished with ending Pods"
        assert not listed, "finished with uncounted Pods"
        empty = job["spec"].get("suspend") and job["spec"].get("completions") == 0
        assert "startTime" in after or empty, "finished without having started"
    completions = job["spec"].get("completions", 0)
    if job["spec"]["completionMode"] == "Indexed":
        completed = parse_indexes(after.get("completedIndexes", ""), 10**6)
        failed = parse_indexes(after.get("failedIndexes", ""), 10**6)
        assert completed.first_common(failed) is None, "an index both failed and completed"
        assert len(completed) == after.get("succeeded", 0), "succeeded is not the completed indexes"
        assert completions >= 0


def _true_conditions(status: Document) -> Iterator[str]:
    for condition in status.get("conditions", ()):
        if condition["status"] == "True":
            yield condition["type"]


def pass_time(server: Server, seconds: float) -> datetime:
    server.now += timedelta(seconds=seconds)
    return server.now
