"""Runner of upstream's reconcile cases: the planner's three stages.

A small driver plays the controller: it claims Pods, carries out plans on paper (with the failures
that a case injects) and records the writes that a server would have seen.
"""

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from onejob.objects.job import Job, JobStatus, read_job
from onejob.objects.meta import Condition
from onejob.objects.pod import Pod, read_pod
from onejob.planning.job.backoff import NO_FAILURES, BackoffRecord
from onejob.planning.job.bookkeeping import Draft
from onejob.planning.job.claiming import plan_claims
from onejob.planning.job.counting import JobCounters, JobPods, completed_indexes
from onejob.planning.job.indexes import parse_indexes
from onejob.planning.job.operator_settings import Settings
from onejob.planning.job.plan import (
    Accounting,
    Event,
    JobOutcome,
    Ledger,
    Observed,
    Plan,
    PodOutcomes,
    PodSeed,
    RemovalOutcomes,
    StatusWrite,
)
from onejob.planning.job.planner import account, plan_job, settle
from onejob.planning.job.pod_facts import is_tracked
from onejob.planning.job.pod_template import PodFactory
from onejob.planning.job.status import status_document
from onejob.planning.job.tracking import account_for_held
from onejob.planning.names import INDEX_ANNOTATION
from tests.conformance.loader import gates_of, with_value
from tests.conformance.planner_cases import as_adopted, spoiled
from tests.conformance.verdict import Case, Failed, Passed, Skipped, Verdict

#: Written by upstream's real Pod control, which the recording replaced by a fake.
_POD_EVENTS = {"SuccessfulCreate", "SuccessfulDelete", "FailedCreate", "FailedDelete"}
#: onejob's additions to upstream's events.
_OWN_EVENTS = {"JobStart", "JobFinish"}


@dataclass
class World:
    """Writes that would have reached the API server, and the controller's memory."""

    case: Case
    settings: Settings
    now: datetime
    statuses: list[JobStatus] = field(default_factory=list)
    created: list[PodSeed] = field(default_factory=list)
    create_failures: list[PodSeed] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    freed: list[str] = field(default_factory=list)
    delete_failures: list[str] = field(default_factory=list)
    free_failures: list[str] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    wakeups: list[float] = field(default_factory=list)
    backoff: BackoffRecord = NO_FAILURES
    error: str | None = None

    @property
    def pod_error(self) -> str | None:
        error: str | None = self.case["injected"].get("podControlError")
        return error

    def write(self, write: StatusWrite | None) -> bool:
        """Record a status write. Return whether the sync may go on."""
        if write is None:
            return True
        self.statuses.append(write.status)
        error = self.case["injected"].get("statusUpdateError")
        if error is not None:
            self.error = error
            return False
        self.events.extend(write.events)
        if write.backoff is not None:
            self.backoff = write.backoff
        return True

    def change_pods(self, plan: Plan) -> PodOutcomes:
        deleted: set[str] = set()
        for deletion in plan.deletions:
            if deletion.remove_finalizer_first:
                (self.free_failures if self.pod_error else self.freed).append(deletion.name)
                if self.pod_error:
                    continue
            (self.delete_failures if self.pod_error else self.deleted).append(deletion.name)
            if not self.pod_error:
                deleted.add(deletion.uid)
        created, failures = self._create(plan.creations)
        failed = len(deleted) < len(plan.deletions) or bool(failures)
        return PodOutcomes(
            frozenset(deleted), created, failures, "pod control failed" if failed else None
        )

    def _create(self, seeds: tuple[PodSeed, ...]) -> tuple[int, int]:
        """Create Pods with slow start: batches of 1, 2, 4…; none after one that had a failure."""
        limit = self.case["injected"].get("podCreateLimit")
        created = failures = position = 0
        batch = 1
        while position < len(seeds) and not failures:
            for seed in seeds[position : position + batch]:
                if self.pod_error or (limit is not None and created + failures >= limit):
                    failures += 1
                    self.create_failures.append(seed)
                else:
                    created += 1
                    self.created.append(seed)
            position += batch
            batch *= 2
        return created, failures

    def finish(self, accounting: Accounting) -> None:
        if not self.write(accounting.write):
            return
        names = [removal.name for removal in accounting.removals]
        if self.pod_error:
            self.free_failures += names
        else:
            self.freed += names
        removed = frozenset(() if self.pod_error else (r.uid for r in accounting.removals))
        settlement = settle(accounting, RemovalOutcomes(removed, self.pod_error if names else None))
        if self.write(settlement.write):
            self.error = settlement.error


def run_case(case: Case) -> Verdict:
    if _refused_by_the_api(case):
        return Skipped(
            "the recorded status calls a Job finished that has no startTime: upstream's fake "
            "writer takes it, its API server refuses it"
        )
    if any(((case.get("controllerState") or {}).get("podExpectations") or {}).values()):
        return Skipped(
            "the caches do not show the controller's own writes yet: onejob waits until they do, "
            "and only then plans"
        )
    world = World(case, Settings.under(gates_of(case)), _time(case["now"]))
    pods = [read_pod(msgspec.json.encode(document)) for document in _all_pods(case)]
    if case["function"] == "trackJobStatusAndRemoveFinalizers":
        _track(world, read_job(msgspec.json.encode(case["job"])), pods)
    elif case["job"] is not None:
        _sync(world, read_job(msgspec.json.encode(case["job"])), pods)
    differences = list(_differences(case, world))
    return Failed("; ".join(differences)) if differences else Passed()


def corruptions(case: Case) -> Iterator[tuple[str, Case]]:
    expected = case["expected"]
    writes = expected["statusUpdates"] or []
    yield (
        "statusUpdates: one too many",
        with_value(case, ("expected", "statusUpdates"), [*writes, {}]),
    )
    for number, status in enumerate(writes):
        for name, value in {"active": 0, "succeeded": 0, "failed": 0, **status}.items():
            spoilt = {**status, name: spoiled(value)}
            path = ("expected", "statusUpdates", number)
            yield f"statusUpdates[].{name}", with_value(case, path, spoilt)
    ghost = [{"type": "Normal", "reason": "Ghost", "message": ""}]
    yield "events", with_value(case, ("expected", "events"), expected["events"] + ghost)
    for name in ("deletions", "failedDeletions", "finalizersRemoved", "failedFinalizerRemovals"):
        wrong_names = [*(expected.get(name) or []), "ghost"]
        yield name, with_value(case, ("expected", name), wrong_names)
    if "requeuedRateLimited" in expected:
        other = not expected["requeuedRateLimited"]
        yield "requeuedRateLimited", with_value(case, ("expected", "requeuedRateLimited"), other)
    wrong_error = None if expected["error"] is not None else "an error"
    yield "error", with_value(case, ("expected", "error"), wrong_error)
    yield "queue", with_value(case, ("expected", "queue"), [{"op": "AddAfter", "seconds": 7}])
    for name, value in expected.get("creations", {}).items():
        if name in ("count", "failed") or (value and _has_creations(expected)):
            path = ("expected", "creations", name)
            yield f"creations.{name}", with_value(case, path, spoiled(value))
    if "backoffRecordAfter" in expected and case["job"] is not None:
        yield (
            "backoffRecordAfter",
            with_value(
                case,
                ("expected", "backoffRecordAfter"),
                {"failuresAfterLastSuccess": 99, "lastFailureTime": None},
            ),
        )


def _has_creations(expected: dict[str, Any]) -> bool:
    return bool(expected["creations"]["count"] or expected["creations"]["failed"])


def _sync(world: World, job: Job, pods: list[Pod]) -> None:
    state = world.case["controllerState"]
    world.backoff = _record(state.get("backoffRecord"))
    observed = Observed(backoff=world.backoff)
    claims = plan_claims(job, (pod for pod in pods if _same_place(pod, job)))
    adopted = [as_adopted(job, pod, world.settings) for pod in claims.adoptions]
    plan = plan_job(job, JobPods((*claims.kept, *adopted)), observed, world.now, world.settings)
    world.events.extend(plan.events)
    world.wakeups = [
        (note.until - world.now).total_seconds() for note in plan.notes if note.until is not None
    ]
    if plan.skipped is None:
        world.finish(account(plan, world.change_pods(plan)))


def _track(world: World, job: Job, pods: list[Pod]) -> None:
    """Run the accounting half alone, with the results of the first half given by the case."""
    case = world.case
    context = case["context"]
    removing = frozenset(case["finalizerRemovalExpectedUIDs"])
    census = JobPods(pods)
    uncounted = job.status.uncounted_terminated_pods
    listed = (*uncounted.succeeded, *uncounted.failed) if uncounted else ()
    ledger = Ledger(
        held=tuple(p for p in pods if is_tracked(p) and p.metadata.uid not in removing),
        released=frozenset(uid for uid in listed if uid in removing or not census.holds(uid)),
        tally=_given_tally(job, census, context),
    )
    plan = Plan(job, world.now, world.settings, ledger=ledger)
    status, dirty = job.status, case["needsFlush"]
    condition = case["finishedCondition"]
    fate = None
    if condition is not None:
        succeeds = condition["type"] in ("Complete", "SuccessCriteriaMet")
        fate = JobOutcome(
            succeeds, condition.get("reason", ""), condition.get("message", ""), recorded=True
        )
        if condition["type"] == "SuccessCriteriaMet":
            # The interim condition was prepared a minute before the sync.
            prepared = msgspec.convert(condition, Condition)
            status = msgspec.structs.replace(status, conditions=(*status.conditions, prepared))
            dirty = True
    draft = Draft(status, fate, context["terminating"], dirty=dirty)
    world.finish(account_for_held(plan, draft))


def _given_tally(job: Job, census: JobPods, context: dict[str, Any]) -> JobCounters:
    retained: dict[int, Pod] = {}
    for index, uid in context["podsWithDelayedDeletionPerIndex"].items():
        pod = census.get(uid)
        assert pod is not None, f"no such pod: {uid}"
        retained[int(index)] = pod
    tally = JobCounters(terminating=context["terminating"], retained=retained)
    if not job.indexed:
        return tally
    completions = job.spec.completions or 0
    failed = context.get("failedIndexes")
    return replace(
        tally,
        recorded_indexes=completed_indexes(job, ())[0],
        completed_indexes=parse_indexes(context["succeededIndexes"], completions),
        failed_indexes=None if failed is None else parse_indexes(failed, completions),
    )


def _differences(case: Case, world: World) -> Iterator[str]:
    expected = case["expected"]
    loose = case.get("nondeterministic") or []
    yield from _differ(
        "statusUpdates",
        [_comparable_status(status) for status in expected["statusUpdates"] or []],
        [_comparable_status(_stored(status)) for status in world.statuses],
    )
    events = [
        {"type": event.type, "reason": event.reason, "message": event.message}
        for event in world.events
        if event.reason not in _POD_EVENTS | _OWN_EVENTS
    ]
    yield from _differ("events", expected["events"], events)
    yield from _differ("error", expected["error"] is not None, world.error is not None)
    wakeups = [{"op": "AddAfter", "seconds": seconds} for seconds in world.wakeups]
    yield from _differ("queue", expected["queue"], wakeups)
    for name, actual in (
        ("deletions", world.deleted),
        ("failedDeletions", world.delete_failures),
        ("finalizersRemoved", world.freed),
        ("failedFinalizerRemovals", world.free_failures),
    ):
        wanted = expected.get(name) or []
        if name in loose:
            unknown = set(actual) - set(case["anyOf"][name])
            yield from _differ(f"{name} (how many)", len(wanted), len(actual))
            yield from _differ(f"{name} (never seen upstream)", set(), unknown)
        else:
            yield from _differ(name, sorted(wanted), sorted(actual))
    if "creations" in expected:
        yield from _creation_differences(case, world)
    if "backoffRecordAfter" in expected:
        yield from _differ(
            "backoffRecordAfter", _record(expected["backoffRecordAfter"]), world.backoff
        )
    if "requeuedRateLimited" in expected:
        yield from _differ(
            "requeuedRateLimited", expected["requeuedRateLimited"], world.error is not None
        )


def _refused_by_the_api(case: Case) -> bool:
    """Return whether the last recorded write violates a rule that onejob's planner obeys.

    A finished Job has a startTime, unless it is suspended with nothing to do.
    """
    writes: list[dict[str, Any]] = case["expected"]["statusUpdates"] or []
    if case["function"] == "trackJobStatusAndRemoveFinalizers" or not writes:
        return False
    finished = {"Complete", "Failed"} & {c["type"] for c in writes[-1].get("conditions", ())}
    spec = case["job"]["spec"]
    nothing_to_do = spec.get("suspend") and spec.get("completions") == 0
    return bool(finished) and not nothing_to_do and "startTime" not in writes[-1]


def _creation_differences(case: Case, world: World) -> Iterator[str]:
    expected = case["expected"]["creations"]
    attempts = world.created + world.create_failures
    yield from _differ("creations.count", expected["count"], len(world.created))
    yield from _differ("creations.failed", expected["failed"], len(world.create_failures))
    if not attempts:
        return
    job = read_job(msgspec.json.encode(case["job"]))
    stamp = PodFactory(job, world.settings)
    documents = [
        msgspec.json.decode(stamp.document(seed))
        for seed in sorted(attempts, key=lambda seed: seed.index or 0)
    ]
    if job.indexed:
        indexes = sorted(seed.index for seed in attempts if seed.index is not None)
        yield from _differ("creations.indexes", sorted(expected["indexes"]), indexes)
        pods = [
            {
                "index": int(document["metadata"]["annotations"][INDEX_ANNOTATION]),
                "generateName": document["metadata"]["generateName"],
                "hostname": document["spec"]["hostname"],
                "annotations": document["metadata"]["annotations"],
            }
            for document in documents
        ]
        yield from _differ("creations.pods", expected["pods"], pods)
    sample = documents[0]
    references = sample["metadata"]["ownerReferences"]
    yield from _differ("creations.controllerRef", [expected["controllerRef"]], references)
    template = {
        "metadata": {
            name: sample["metadata"][name]
            for name in ("labels", "annotations", "finalizers")
            if name in sample["metadata"]
        },
        "spec": sample["spec"],
    }
    wanted = copy.deepcopy(expected["sampleTemplate"])
    wanted["metadata"].pop("generateName", None)
    yield from _differ("creations.sampleTemplate", wanted, template)


def _differ(what: str, expected: object, actual: object) -> Iterator[str]:
    if expected != actual:
        yield f"{what}: expected {expected!r}, got {actual!r}"


def _comparable_status(status: dict[str, Any]) -> dict[str, Any]:
    """Return the status with times as instants and UID lists as sets."""
    comparable = dict(status)
    uncounted = comparable.get("uncountedTerminatedPods")
    if uncounted is not None:
        comparable["uncountedTerminatedPods"] = {
            kind: sorted(uids) for kind, uids in uncounted.items()
        }
    return comparable


def _all_pods(case: Case) -> list[dict[str, Any]]:
    """Return all Pods of the case.

    Pods that enter the cache while expectations are checked must be seen, as the Pods are listed
    after that.
    """
    late: list[dict[str, Any]] = case.get("podsAppearingDuringExpectationsCheck") or []
    pods: list[dict[str, Any]] = case["pods"]
    return pods + late


def _same_place(pod: Pod, job: Job) -> bool:
    controller = pod.metadata.controller_ref
    return pod.metadata.namespace == job.metadata.namespace and (
        controller is None or controller.uid == job.metadata.uid
    )


def _record(document: dict[str, Any] | None) -> BackoffRecord:
    if document is None:
        return NO_FAILURES
    at = document["lastFailureTime"]
    return BackoffRecord(document["failuresAfterLastSuccess"], None if at is None else _time(at))


def _time(text: str) -> datetime:
    return msgspec.convert(text, datetime)


def _stored(status: JobStatus) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(status_document(status)))
    return document
