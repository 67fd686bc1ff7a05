"""Mirror planner: from the desired state here, the observed copy and the record to one step. Pure.

The controller observes, executes the step, and plans again. The order of writes makes it safe to
crash between any two of them:

1. `ClaimJob`: the local Job gets its finalizer and a record of where its copy will be.
2. `CreateCopy`: under a name that only one Job can have, suspended, labelled with our UID. Whether
   a request took effect is determined by reading.
3. `LinkCopy`: the copy's UID is recorded.
4. `ChangeCopy` with `starts`: only a copy whose UID is recorded is ever resumed. A copy that
   appears late stays suspended, and no process is ever started twice.

A record is replaced (`Relocate`) only once the copy that it names is proven gone: the remote API
server reports that the Job does not exist and that none of its Pods runs. The alternative is the
timeout that the Job itself sets, whose expiry is reported in an Event.
"""

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from msgspec.structs import replace

from onejob.objects.job import Job, is_finished
from onejob.planning.mirror import names
from onejob.planning.mirror.annotations import (
    CopyLocation,
    InvalidAnnotation,
    MirrorSpec,
    read_mirror_spec,
    record_of,
)
from onejob.planning.mirror.copying import (
    FieldChange,
    changes,
    copy_of,
    dropped_fields,
    needed_spec,
)

Document = dict[str, Any]


# --- observations -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FoundCopy:
    """A Job with the copy's name exists. The planner determines whether it is the copy."""

    document: Document
    #: Number of unfinished Pods of the recorded copy; queried if this Job is not that copy.
    pods_left: int = 0
    server: str = ""

    @property
    def uid(self) -> str:
        return str(self.document["metadata"]["uid"])

    @property
    def origin(self) -> str:
        """UID of the Job that the object is a copy of; "" for any other object."""
        return str(self.document["metadata"].get("labels", {}).get(names.ORIGIN, ""))

    @property
    def deleting(self) -> bool:
        return "deletionTimestamp" in self.document["metadata"]


@dataclass(frozen=True, slots=True)
class Absent:
    """The remote API server reports that the Job does not exist."""

    pods_left: int = 0
    server: str = ""


@dataclass(frozen=True, slots=True)
class RemoteUnreachable:
    """The remote cluster was unreachable or denied access."""

    reason: str
    message: str
    #: Duration of the outage so far; 0 if it concerns only this request.
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class NotQueried:
    """The remote state is not needed yet."""


Remote: TypeAlias = FoundCopy | Absent | RemoteUnreachable | NotQueried


@dataclass(frozen=True, slots=True)
class Facts:
    job: Job
    document: Document
    remote: Remote
    #: True if the Job is being deleted with orphan propagation, so that its Pods stay.
    orphaning: bool = False


# --- steps --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClaimJob:
    record: CopyLocation


@dataclass(frozen=True, slots=True)
class CreateCopy:
    document: Document


@dataclass(frozen=True, slots=True)
class LinkCopy:
    record: CopyLocation


@dataclass(frozen=True, slots=True)
class RecordState:
    """Update the record, before the evidence for it disappears."""

    record: CopyLocation


@dataclass(frozen=True, slots=True)
class ChangeCopy:
    copy: Document
    changes: list[FieldChange]
    #: True if the change may start Pods: the ConfigMaps and Secrets they need must exist.
    starts: bool


@dataclass(frozen=True, slots=True)
class RemoveCopy:
    uid: str
    propagation: Literal["Foreground", "Orphan"] = "Foreground"


@dataclass(frozen=True, slots=True)
class Relocate:
    """The recorded copy is gone or abandoned: the next one may be created."""

    record: CopyLocation
    #: Message of the Event to emit.
    message: str
    abandoned: bool = False


@dataclass(frozen=True, slots=True)
class Fail:
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Release:
    """Remove the finalizer of the local Job.

    `message` lists leftovers on the remote side, if any.
    """

    message: str = ""


@dataclass(frozen=True, slots=True)
class ReportStatus:
    """Only update the local status from the copy."""

    copy: Document


@dataclass(frozen=True, slots=True)
class Wait:
    """The mirror is blocked; gives the reason and a remedy."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class NothingToDo:
    """The mirror has nothing (more) to do for this Job."""


Step: TypeAlias = (
    ClaimJob | CreateCopy | LinkCopy | RecordState | ChangeCopy | RemoveCopy | Relocate | Fail
    | Release | ReportStatus | Wait | NothingToDo
)  # fmt: skip


def location_to_query(job: Job) -> CopyLocation | None:
    """Return the location to query before planning; None if no query is needed."""
    if job.finished and not job.metadata.deleting:
        return None
    if job.metadata.deleting:
        return _last_record(job)
    return record_of(job)


def plan(facts: Facts) -> Step:
    """Return the next step for a mirrored Job; it waits while its annotations are invalid."""
    job = facts.job
    if job.metadata.deleting:
        return _deletion_step(facts)
    if job.finished:
        return NothingToDo()
    record = record_of(job)
    try:
        wanted = read_mirror_spec(job)
    except InvalidAnnotation as error:
        return Wait("BadAnnotation", str(error))
    if record is None:
        return ClaimJob(CopyLocation(wanted.target, wanted.namespace, job.metadata.name))
    moved = (wanted.target, wanted.namespace) != (record.target, record.namespace)
    if moved and not _decided(job):
        return _moving(facts, record, wanted)
    match facts.remote:
        case RemoteUnreachable(reason, message):
            return Wait(reason, message)
        case Absent(server=server):
            if not record.uid:
                return CreateCopy(copy_of(facts.document, record))
            return _copy_missing_step(facts, record, wanted, server)
        case FoundCopy() as found:
            return _copy_found(facts, record, wanted, found)
        case NotQueried():
            raise AssertionError("a Job with a record is only planned for once its copy was read")


def _copy_found(facts: Facts, record: CopyLocation, wanted: MirrorSpec, found: FoundCopy) -> Step:
    """Return the step for the object that was found under the copy's name: the copy, or another
    one."""
    job = facts.job
    if found.origin != job.metadata.uid:
        if record.uid:
            return _copy_missing_step(facts, record, wanted, found.server)
        return Wait(
            "NameTaken",
            f"{_copy_id(record)} is not a copy of this Job; delete it there, or create this Job "
            "with another name",
        )
    if not record.uid:
        return _link(facts, record, found)
    if found.uid != record.uid:
        # A late copy, created after the recorded one was gone. It has never run.
        return RemoveCopy(found.uid)
    if found.deleting:
        return Wait("CopyIsDeleted", f"{_copy_id(record)} is being deleted there")
    needed = changes(facts.document, found.document)
    if needed and not is_finished(found.document):
        starts = any(change.field == "suspend" and not change.new for change in needed)
        return ChangeCopy(found.document, needed, starts)
    return ReportStatus(found.document)


def _link(facts: Facts, record: CopyLocation, found: FoundCopy) -> Step:
    """Return the step for a copy that was found but is not recorded yet."""
    if found.deleting:
        return Wait("CopyIsDeleted", f"{_copy_id(record)} is being deleted there")
    wanted = needed_spec(copy_of(facts.document, record))
    if dropped := list(dropped_fields(wanted, found.document["spec"])):
        return Wait(
            "FieldsNotKnown",
            f"the remote server drops {', '.join(dropped[:5])}, so the Job would behave "
            "differently there; the copy stays suspended. Use a newer server, or create the "
            "Job without these fields",
        )
    return LinkCopy(replace(record, uid=found.uid, server=found.server))


def _copy_missing_step(facts: Facts, record: CopyLocation, wanted: MirrorSpec, server: str) -> Step:
    """Return the step after the recorded copy disappeared without our doing."""
    job = facts.job
    if (waiting := _unproven(facts, record, server)) is not None:
        return waiting
    text = f"{_copy_id(record)} was deleted there, and none of its Pods is running"
    if _decided(job) or not wanted.restart:
        again = (
            f"; to run it again, create the Job again, or use {names.WHEN_COPY_DELETED}: Restart"
        )
        return Fail("MirrorCopyDeleted", text + again)
    after = replace(record, uid="", server="", attempt=record.attempt + 1)
    return Relocate(after, f"{text}: creating copy {after.attempt}")


def _moving(facts: Facts, record: CopyLocation, wanted: MirrorSpec) -> Step:
    """Return the step after the target was changed: the old copy must be gone first."""
    after = CopyLocation(wanted.target, wanted.namespace, record.name, attempt=record.attempt + 1)
    match facts.remote:
        case RemoteUnreachable(reason, message, seconds):
            if not record.uid:
                # Nothing was ever started there, and nothing will be.
                return Relocate(
                    after, f"nothing is running on {record.target}: moved to {after.target}"
                )
            if wanted.lost_after is not None and seconds >= wanted.lost_after:
                return Relocate(after, _abandoned_text(record, wanted.lost_after), abandoned=True)
            return Wait(reason, f"{message}; {_abandon_deadline_text(record, wanted, seconds)}")
        case FoundCopy() as found if found.origin == facts.job.metadata.uid:
            if found.deleting:
                return Wait("Moving", f"deleting {_copy_id(record)} before the Job moves")
            return RemoveCopy(found.uid)
        case FoundCopy(server=server) | Absent(server=server):
            if (waiting := _unproven(facts, record, server)) is not None:
                return waiting
            return Relocate(after, f"{_copy_id(record)} is deleted: moved to {after.target}")
        case NotQueried():
            raise AssertionError("a Job with a record is only planned for once its copy was read")


def _deletion_step(facts: Facts) -> Step:
    """Return the step for a Job that is being deleted."""
    job = facts.job
    if names.FINALIZER not in job.metadata.finalizers:
        return NothingToDo()
    record = _last_record(job)
    if record is None:
        return Release()
    if facts.orphaning and not record.orphaned:
        return RecordState(replace(record, orphaned=True))
    try:
        lost_after = read_mirror_spec(job).lost_after
    except InvalidAnnotation:
        lost_after = None
    match facts.remote:
        case RemoteUnreachable(reason, message, seconds):
            if not record.uid:
                return Release(
                    f"{_copy_id(record)} was never started; if it was created there, it stays "
                    "suspended"
                )
            if lost_after is not None and seconds >= lost_after:
                return Release(_abandoned_text(record, lost_after))
            wanted = MirrorSpec(lost_after=lost_after)
            return Wait(reason, f"{message}; {_abandon_deadline_text(record, wanted, seconds)}")
        case FoundCopy() as found if found.origin == job.metadata.uid:
            if found.deleting:
                return Wait("Leaving", f"deleting {_copy_id(record)}")
            return RemoveCopy(found.uid, "Orphan" if record.orphaned else "Foreground")
        case FoundCopy(server=server) | Absent(server=server):
            waiting = None if record.orphaned else _unproven(facts, record, server)
            return waiting or Release()
        case NotQueried():
            raise AssertionError("a Job with a record is only planned for once its copy was read")


def _last_record(job: Job) -> CopyLocation | None:
    """Return the location of a deleted Job's copy, even if a user removed the record."""
    if names.FINALIZER not in job.metadata.finalizers:
        return None
    record = record_of(job)
    if record is not None:
        return record
    try:
        wanted = read_mirror_spec(job)
    except InvalidAnnotation:
        return None
    return CopyLocation(wanted.target, wanted.namespace, job.metadata.name)


def _unproven(facts: Facts, record: CopyLocation, server: str) -> Wait | None:
    """Return why the recorded copy cannot be considered gone yet; None if it can."""
    if not record.uid:
        return None
    if server != record.server:
        return Wait(
            "ServerChanged",
            f"target {record.target} was {record.server} when {_copy_id(record)} was created and "
            f"is now {server}, which does not have it; restore the target, or remove the "
            f"finalizer {names.FINALIZER} from the deleted Job",
        )
    pods_left = facts.remote.pods_left if isinstance(facts.remote, FoundCopy | Absent) else 0
    if pods_left:
        return Wait(
            "PodsLeft",
            f"{_copy_id(record)} is deleted, but {pods_left} of its Pods are still running there: "
            f"kubectl get pods -l {names.ORIGIN}={facts.job.metadata.uid}",
        )
    return None


def _decided(job: Job) -> bool:
    """Return whether the Job's outcome is decided, so that it is too late to start over."""
    return job.condition_is_true("FailureTarget") or job.condition_is_true("SuccessCriteriaMet")


def _abandoned_text(record: CopyLocation, lost_after: float) -> str:
    return (
        f"{_copy_id(record)} (UID {record.uid}) is abandoned after {lost_after:g} s without "
        f"contact, according to {names.LOST_AFTER}: it may still be running there"
    )


def _abandon_deadline_text(record: CopyLocation, wanted: MirrorSpec, seconds: float) -> str:
    if wanted.lost_after is None:
        return (
            f"{_copy_id(record)} may still be running, so no other copy is started and the Job is "
            f"kept; set {names.LOST_AFTER} to abandon it after a time"
        )
    left = max(wanted.lost_after - seconds, 0.0)
    return f"{_copy_id(record)} may still be running; it is abandoned in {left:.0f} s"


def _copy_id(record: CopyLocation) -> str:
    """Return the name and target of a copy, for messages."""
    return f"job {record.namespace}/{record.name} on {record.target}"
