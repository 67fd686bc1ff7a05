"""One sync of one CronJob: read the planner's inputs from the API and execute its decisions.

Reads and deletions go through a `Client`. The creation of a Job and the status that records it go
through a `WriteSeries`, which in the server's process puts both into one commit: no crash can leave
a Job whose slot is not recorded.
"""

from collections.abc import Callable, Sequence
from datetime import datetime

import msgspec
from msgspec import Struct

from onejob.client.base import Client, Create, Delete, Patch
from onejob.client.write_series import DurableWrites, WriteSeries
from onejob.objects.cronjob import Child, CronJob, CronJobStatus, CronKind
from onejob.objects.meta import Key
from onejob.planning.cronjob.documents import status_patch
from onejob.planning.cronjob.planner import (
    Created,
    Existed,
    NotCreated,
    NotReplaced,
    Outcome,
    StartPlan,
    plan_start,
    settle,
)
from onejob.planning.cronjob.status import (
    CurrentState,
    Deleted,
    controls,
    needs_reread,
    plan_history,
    record_slots,
    update_status,
)
from onejob.planning.future_times import NO_FUTURE_TIMES, FutureTimes
from onejob.planning.job.plan import Event
from onejob.wire.errors import AlreadyExists, ApiError, NotFound


class Synced(Struct, frozen=True, kw_only=True):
    """Result of a sync.

    The controller has yet to write the status, record the Events and requeue the CronJob.
    """

    #: The CronJob that the status is for: the cached one, or a newer one that was read.
    cronjob: CronJob
    status: CronJobStatus | None
    events: tuple[Event, ...]
    #: Newest revision of writes to Jobs, and of Jobs read from the API.
    job_revision: int
    look_again_seconds: float | None = None
    error: str | None = None
    #: Seconds between the slot and the creation of its Job; None if none was created.
    skew_seconds: float | None = None
    #: The Job name of the due slot is taken by a Job that is not ours to record; only its end will
    #: help.
    blocked: bool = False
    #: Why no Job was started, if none was.
    note: str = ""
    #: Input of the next sync.
    future_times: FutureTimes = NO_FUTURE_TIMES
    #: Name of a Job that may have been created: the result of the attempt is unknown.
    unconfirmed: str = ""


async def sync_cronjob(
    client: Client,
    cronjob: CronJob,
    jobs: Sequence[Child],
    now: datetime,
    *,
    local_zone: str = "UTC",
    keeps_history: bool = True,
    starting: Callable[[str], None] = lambda name: None,
    known: FutureTimes | None = None,
    unconfirmed: str = "",
    started: datetime | None = None,
    series: WriteSeries | None = None,
    shows_next_slot: bool = False,
) -> Synced:
    """Sync one CronJob and return the result; the caller writes the status.

    `jobs` are the cached Jobs that the CronJob controls. `starting` is called with the name of a
    Job before it is created; `known` and `unconfirmed` are `future_times` and `unconfirmed` of the
    previous sync. `started` is a slot whose Job was created but whose status could not be written.
    The Job is created in `series`, by default one that awaits each write; nothing is awaited
    between its creation and the return.
    """
    calls = _ApiCalls(
        client, series or DurableWrites(client), cronjob.cron_kind, starting, unconfirmed
    )
    deleted = await calls.delete_all(plan_history(cronjob, jobs, now)) if keeps_history else ()
    current = update_status(cronjob, None, (), deleted)
    try:
        jobs = await calls.with_unconfirmed(cronjob, jobs)
        live = await calls.read_cronjob(cronjob.key) if needs_reread(cronjob, jobs) else None
        listed = update_status(cronjob, live, jobs, deleted)
        current = record_slots(listed, jobs, now, started)
        missing = await calls.find_missing(current)
    except ApiError as error:
        return _incomplete(current, calls, error, known or NO_FUTURE_TIMES)
    plan = plan_start(
        current,
        missing,
        now,
        local_zone=local_zone,
        known=known,
        shows_next_slot=shows_next_slot,
    )
    outcome, replaced = await calls.start(plan)
    settlement = settle(plan, replaced, outcome)
    # The Jobs of slots may be deleted only once the slots are recorded.
    look_again = settlement.look_again_seconds if current is listed else 0.0
    return Synced(
        cronjob=plan.current.cronjob,
        status=settlement.status,
        events=(*plan.current.events, *plan.events, *settlement.events),
        look_again_seconds=look_again,
        error=settlement.error,
        skew_seconds=settlement.skew_seconds,
        job_revision=calls.job_revision,
        blocked=isinstance(outcome, Existed) and look_again is None,
        note=plan.note,
        future_times=plan.future_times,
        unconfirmed=calls.unconfirmed,
    )


async def write_status(series: WriteSeries, synced: Synced) -> int:
    """Write the status if the sync changed it. Return the revision written, or 0."""
    if synced.status is None:
        return 0
    body = status_patch(synced.cronjob, synced.status)
    written = await series.write(Patch(synced.cronjob.key, body, "merge", "status"))
    return written.revision


def _incomplete(
    current: CurrentState, calls: "_ApiCalls", error: ApiError, known: FutureTimes
) -> Synced:
    """Return the result of a sync whose reads failed.

    The planner lacked inputs; the facts found until then are kept.
    """
    return Synced(
        cronjob=current.cronjob,
        status=current.status if current.changed else None,
        events=current.events,
        error=str(error),
        job_revision=calls.job_revision,
        future_times=known,
        unconfirmed=calls.unconfirmed,
    )


class _ApiCalls:
    """API calls of one sync."""

    def __init__(
        self,
        client: Client,
        series: WriteSeries,
        kind: CronKind,
        starting: Callable[[str], None],
        unconfirmed: str,
    ) -> None:
        self._client = client
        self._series = series
        self._kind = kind
        self._starting = starting
        self.unconfirmed = unconfirmed
        self.job_revision = 0

    async def delete_all(self, jobs: Sequence[Child]) -> tuple[Deleted, ...]:
        """Delete the Jobs and return the result of each."""
        if not jobs:
            return ()
        ops = [Delete(job.key, "Background", uid=job.metadata.uid) for job in jobs]
        deleted = []
        for job, result in zip(jobs, await self._client.write_many(ops), strict=True):
            error = str(result) if isinstance(result, ApiError) else None
            if not isinstance(result, ApiError):
                self.job_revision = max(self.job_revision, result.revision)
            if not isinstance(result, NotFound):
                deleted.append(Deleted(job.metadata.name, job.metadata.uid, error))
        return tuple(deleted)

    async def with_unconfirmed(self, cronjob: CronJob, jobs: Sequence[Child]) -> Sequence[Child]:
        """Return `jobs` and, if it exists, the Job that an earlier sync may have created.

        The cache may not contain that Job before the next slot is due.
        """
        if not self.unconfirmed:
            return jobs
        key = Key(self._kind.child_resource, cronjob.metadata.namespace, self.unconfirmed)
        known = any(job.key == key for job in jobs)
        try:
            found = None if known else await self._read_job(key)
        except NotFound:
            found = None
        self.unconfirmed = ""
        return jobs if found is None or not controls(cronjob, found) else (*jobs, found)

    async def _read_job(self, key: Key) -> Child:
        """Read a Job that the cache may lack; the next sync waits until the cache contains it."""
        job = self._kind.read_child(await self._client.get(key))
        self.job_revision = max(self.job_revision, job.metadata.revision)
        return job

    async def read_cronjob(self, key: Key) -> CronJob:
        return self._kind.read(await self._client.get(key))

    async def find_missing(self, current: CurrentState) -> frozenset[str]:
        """Return the UIDs of active Jobs that the cache lacks and that do not exist, or no longer
        under their UID."""
        missing = set()
        for reference in current.unseen:
            try:
                document = await self._client.get(
                    Key(self._kind.child_resource, reference.namespace, reference.name)
                )
            except NotFound:
                missing.add(reference.uid)
            else:
                # A namesake created by another client must not block the CronJob for ever.
                if self._kind.read_child(document).metadata.uid != reference.uid:
                    missing.add(reference.uid)
        return frozenset(missing)

    async def start(self, plan: StartPlan) -> tuple[Outcome | None, tuple[Deleted, ...]]:
        """Create the planned Job, after deleting those that it replaces; return the results.

        The outcome is None if nothing is to be started.
        """
        if plan.start is None:
            return None, ()
        replaced: list[Deleted] = []
        for reference in plan.start.replaces:
            key = Key(self._kind.child_resource, reference.namespace, reference.name)
            try:
                job = self._kind.read_child(await self._client.get(key))
            except ApiError as error:
                return NotReplaced(str(error), lookup=True), tuple(replaced)
            deletion = Delete(key, "Background", uid=job.metadata.uid)
            result = (await self._client.write_many([deletion]))[0]
            error_text = str(result) if isinstance(result, ApiError) else None
            replaced.append(Deleted(job.metadata.name, job.metadata.uid, error_text))
            if isinstance(result, ApiError):
                text = f"cannot replace job {key.namespace}/{key.name}"
                return NotReplaced(text, lookup=False), tuple(replaced)
            self.job_revision = max(self.job_revision, result.revision)
        return await self._create(plan), tuple(replaced)

    async def _create(self, plan: StartPlan) -> Outcome:
        """Create the planned Job and return the outcome."""
        assert plan.start is not None, "there is nothing to create"
        namespace = plan.current.cronjob.metadata.namespace
        if self._series.shares_commit:
            try:
                # A Job whose slot cannot be recorded in the same commit must not be created.
                await self._series.write(_unchanged(plan.current.cronjob))
            except ApiError as error:
                return NotCreated(str(error), silent=True)
        self._starting(plan.start.name)
        self.unconfirmed = plan.start.name
        try:
            written = await self._series.write(
                Create(self._kind.child_resource, namespace, plan.start.document)
            )
        except AlreadyExists:
            key = Key(self._kind.child_resource, namespace, plan.start.name)
            try:
                # The existing Job may be staged only: it can be read once it is on disk.
                await self._series.durable()
                existing = await self._read_job(key)
            except ApiError as error:
                return NotCreated(str(error), silent=True)
            self.unconfirmed = ""
            return Existed(existing)
        except ApiError as error:
            return NotCreated(str(error), _namespace_terminating(error))
        self.unconfirmed = ""
        self.job_revision = max(self.job_revision, written.revision)
        return Created(self._kind.read_child(written.document))


def _unchanged(cronjob: CronJob) -> Patch:
    """Return a patch that changes nothing, and fails as `status_patch` does if the CronJob has
    changed or is gone."""
    body = {"metadata": {"resourceVersion": cronjob.metadata.resource_version}}
    return Patch(cronjob.key, msgspec.json.encode(body), "merge", "status")


def _namespace_terminating(error: ApiError) -> bool:
    """Return whether a creation failed because its namespace is being deleted."""
    causes = error.details.get("causes") or ()
    return any(cause.get("reason") == "NamespaceTerminating" for cause in causes)
