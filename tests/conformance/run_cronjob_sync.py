"""Runner of upstream's CronJob syncs: the real sync on a recording client."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from onejob.client.base import (
    Create,
    Delete,
    Listing,
    Op,
    Patch,
    Result,
    Selection,
    WatchEvent,
    Written,
)
from onejob.client.write_series import DurableWrites
from onejob.controllers.cronjob_sync import Synced, sync_cronjob, write_status
from onejob.objects.cronjob import CronJob, read_cronjob
from onejob.objects.job import Job, read_job
from onejob.objects.meta import CRONJOBS, Key
from onejob.planning.cronjob.documents import job_document
from onejob.planning.cronjob.planner import plan_start, reschedule
from onejob.planning.cronjob.schedule import parse_schedule
from onejob.planning.cronjob.slots import due_slot, look_again_seconds, most_recent_slot
from onejob.planning.cronjob.status import by_start_time, update_status
from onejob.planning.job.plan import Event
from onejob.wire.errors import ApiError, from_status, not_found
from tests.conformance.loader import with_value
from tests.conformance.verdict import Case, Failed, Passed, Verdict, compare


def run_case(case: Case) -> Verdict:
    return _RUNNERS[case["function"]](case)


def corruptions(case: Case) -> Iterator[tuple[str, Case]]:
    """Yield one wrong value for everything in `expected`: it is all compared."""
    for field, value in case["expected"].items():
        if field not in _NOT_COMPARED.get(case["function"], ()):
            yield (
                f"{case['function']} {field}",
                with_value(case, ("expected", field), _wrong(value)),
            )


#: `statusUpdates` of syncCronJob are empty by construction: only `sync` writes.
_NOT_COMPARED = {"syncCronJob": ("statusUpdates",)}


def _wrong(value: Any) -> Any:
    match value:
        case bool():
            return not value
        case None | str():
            return f"{value}x"
        case int() | float():
            return value + 1
        case list():
            return value[:-1] if value else [{}]
        case dict():
            return {**value, "corrupted": True}
        case _:
            raise AssertionError(f"an expected value of type {type(value)}")


def _run_sync_cronjob(case: Case) -> Verdict:
    client = RecordingClient(case)
    cronjob = _cronjob(case["cronJob"])
    synced = asyncio.run(_sync(client, case, cronjob, keeps_history=False))
    # Upstream reports the object that was passed in, even when it went on with a re-read copy.
    passed_on = synced.cronjob is cronjob and synced.status is not None
    status = synced.status if passed_on and synced.status else cronjob.status
    return _compare_all(
        case,
        {
            **client.calls(),
            "error": synced.error,
            "events": _events(synced.events),
            "requeueAfterSeconds": _rounded(synced.look_again_seconds),
            "status": msgspec.json.decode(msgspec.json.encode(status)),
            "updateStatus": synced.status is not None,
        },
    )


def _run_sync(case: Case) -> Verdict:
    client = RecordingClient(case)
    cronjob = _cronjob(case["cronJob"])

    async def sync_and_write() -> tuple[Synced, str | None]:
        synced = await _sync(client, case, cronjob, keeps_history=True)
        try:
            await write_status(DurableWrites(client), synced)
        except ApiError as error:
            return synced, str(error)
        return synced, synced.error

    synced, error = asyncio.run(sync_and_write())
    actual = {
        **client.calls(),
        "error": error,
        "events": _events(synced.events),
        "requeueAfterSeconds": _rounded(synced.look_again_seconds) if error is None else None,
    }
    if "statusUpdates" in case["expected"]:
        actual["statusUpdates"] = client.status_updates
    return _compare_all(case, actual)


def _run_update(case: Case) -> Verdict:
    seconds, event = reschedule(_cronjob(case["old"]), _cronjob(case["new"]), _now(case))
    actual = {
        "enqueueAfterSeconds": _rounded(seconds) if seconds else None,
        "enqueuedImmediately": seconds == 0,
        "events": _events([event] if event else []),
    }
    return _compare_all(case, actual)


def _run_job_from_template(case: Case) -> Verdict:
    document = job_document(_cronjob(case["cronJob"]), _time(case["scheduledTime"]))
    return _compare_all(case, {"error": None, "job": _created(document)})


def _run_next_schedule_time(case: Case) -> Verdict:
    cronjob = _cronjob(case["cronJob"])
    spec = msgspec.structs.replace(cronjob.spec, schedule=case["schedule"])
    cronjob = msgspec.structs.replace(cronjob, spec=spec)
    recent = due_slot(cronjob, cronjob.status, _now(case), parse_schedule(case["schedule"]))
    plan = plan_start(update_status(cronjob, None, ()), frozenset(), _now(case))
    obstacle_events = [event for event in plan.events if event.reason == "TooManyMissedTimes"]
    actual = {
        "error": recent.error,
        "events": _events(obstacle_events),
        "scheduledTime": _stamp(recent.slot),
    }
    return _compare_all(case, actual)


def _run_most_recent(case: Case) -> Verdict:
    cronjob = _cronjob(case["cronJob"])
    recent = most_recent_slot(
        cronjob,
        cronjob.status,
        _now(case),
        parse_schedule(cronjob.spec.schedule),
        within_deadline=case["includeStartingDeadlineSeconds"],
    )
    actual = {
        "earliestTime": _stamp(recent.earliest),
        "error": recent.error,
        "missedSchedules": recent.missed,
        "mostRecentTime": _stamp(recent.slot),
    }
    return _compare_all(case, actual)


def _run_duration(case: Case) -> Verdict:
    cronjob = _cronjob(case["cronJob"])
    schedule = parse_schedule(cronjob.spec.schedule)
    seconds = look_again_seconds(cronjob, cronjob.status, _now(case), schedule)
    return _compare_all(case, {"nextScheduleDeltaSeconds": 0.1, "seconds": _rounded(seconds)})


def _run_sort(case: Case) -> Verdict:
    ordered = sorted((_job(job) for job in case["jobs"]), key=by_start_time)
    return _compare_all(case, {"order": [job.metadata.name for job in ordered]})


_RUNNERS: Mapping[str, Callable[[Case], Verdict]] = {
    "syncCronJob": _run_sync_cronjob,
    "sync": _run_sync,
    "updateCronJob(informer event)": _run_update,
    "getJobFromTemplate2": _run_job_from_template,
    "nextScheduleTime": _run_next_schedule_time,
    "mostRecentScheduleTime": _run_most_recent,
    "nextScheduleTimeDuration": _run_duration,
    "byJobStartTime(sort)": _run_sort,
}


async def _sync(
    client: "RecordingClient", case: Case, cronjob: CronJob, *, keeps_history: bool
) -> Synced:
    jobs = [_job(document) for document in case["jobs"]]
    ours = [
        job
        for job in jobs
        if (owner := job.metadata.controller_ref) and owner.uid == cronjob.metadata.uid
    ]
    return await sync_cronjob(client, cronjob, ours, _now(case), keeps_history=keeps_history)


class RecordingClient:
    """Client that responds as the case says and records the requests."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._injected: Mapping[str, Any] = case["injected"]
        self._gets: list[dict[str, Any]] = []
        self._deletions: list[dict[str, Any]] = []
        self._creations: list[dict[str, Any]] = []
        self.status_updates: list[dict[str, Any]] = []

    def calls(self) -> dict[str, Any]:
        return {
            "jobGets": self._gets,
            "jobDeletions": self._deletions,
            "jobCreations": self._creations,
        }

    async def get(self, key: Key) -> bytes:
        if key.resource == CRONJOBS:
            return _found(key, self._case["liveCronJob"])
        error = self._error("jobGetOrDeleteError")
        self._gets.append(
            {
                "error": str(error) if error else None,
                "name": key.name,
                "namespace": key.namespace,
            }
        )
        if error:
            raise error
        return _found(key, self._case["existingJobReturnedByGet"])

    async def write(self, op: Op) -> Written:
        match op:
            case Create(_, namespace, document):
                error = self._error("jobCreateError")
                self._creations.append(
                    {
                        "error": str(error) if error else None,
                        "job": _created(document),
                        "namespace": namespace,
                    }
                )
                if error:
                    raise error
                created = msgspec.json.decode(document)
                created["metadata"]["uid"] = "test-uid"
                return Written(0, msgspec.json.encode(created))
            case Delete(key):
                error = self._error("jobGetOrDeleteError")
                self._deletions.append(
                    {
                        "error": str(error) if error else None,
                        "name": key.name,
                        "namespace": key.namespace,
                    }
                )
                if error:
                    raise error
                return Written(0, b"{}")
            case Patch(key, _, "merge", "status"):
                if "statusUpdates" not in self._case["expected"]:
                    raise not_found(key.resource, key.name)
                status = msgspec.json.decode(op.body)["status"]
                self.status_updates.append({k: v for k, v in status.items() if v is not None})
                return Written(0, b"{}")
            case _:
                raise AssertionError(f"a CronJob sync does not do this: {op}")

    async def write_many(self, ops: Sequence[Op]) -> Sequence[Result]:
        results: list[Result] = []
        for op in ops:
            try:
                results.append(await self.write(op))
            except ApiError as error:
                results.append(error)
        return results

    async def list(self, what: Selection, *, limit: int = 0, token: str = "") -> Listing:
        raise AssertionError("a CronJob sync does not list")

    def watch(self, what: Selection, *, after: int) -> AsyncGenerator[Sequence[WatchEvent], None]:
        raise AssertionError("a CronJob sync does not watch")

    async def close(self) -> None:
        pass

    def _error(self, name: str) -> ApiError | None:
        if name not in self._injected:
            return None
        error = from_status(self._injected[f"{name}Object"])
        error.args = (self._injected[name],)
        return error


def _found(key: Key, document: Any) -> bytes:
    if document is None:
        raise not_found(key.resource, key.name)
    return msgspec.json.encode(document)


def _created(document: bytes) -> Any:
    """Return a created Job as the recording shows it.

    There it also carries the slot as its creationTimestamp, which the server overwrites and we do
    not send.
    """
    job = msgspec.json.decode(document)
    stamp = job["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"]
    job["metadata"]["creationTimestamp"] = _stamp(datetime.fromisoformat(stamp))
    return job


def _compare_all(case: Case, actual: Mapping[str, Any]) -> Verdict:
    for field, expected in case["expected"].items():
        if field in _NOT_COMPARED.get(case["function"], ()):
            continue
        verdict = compare(field, expected, actual[field])
        if isinstance(verdict, Failed):
            return verdict
    return Passed()


def _events(events: Sequence[Event]) -> list[dict[str, str]]:
    return [
        {"message": event.message, "reason": event.reason, "type": event.type} for event in events
    ]


def _cronjob(document: Any) -> CronJob:
    return read_cronjob(msgspec.json.encode(document))


def _job(document: Any) -> Job:
    return read_job(msgspec.json.encode(document))


def _now(case: Case) -> datetime:
    return _time(case["now"])


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def _stamp(at: datetime | None) -> str | None:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if at is not None else None


#: No longer duration fits into the nanoseconds of a recording.
_MAX_SECONDS = 2**63 / 10**9


def _rounded(seconds: float | None) -> float | None:
    return round(min(seconds, _MAX_SECONDS), 6) if seconds is not None else None
