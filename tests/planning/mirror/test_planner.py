"""Mirror planner: one row per state of both sides, with the next step."""

from typing import Any

import msgspec
import pytest

from onejob.objects.job import read_job
from onejob.planning.mirror import names
from onejob.planning.mirror.annotations import CopyLocation, record_text
from onejob.planning.mirror.copying import copy_of
from onejob.planning.mirror.planner import (
    Absent,
    ChangeCopy,
    ClaimJob,
    CreateCopy,
    Facts,
    Fail,
    FoundCopy,
    LinkCopy,
    NothingToDo,
    NotQueried,
    RecordState,
    Release,
    Relocate,
    Remote,
    RemoteUnreachable,
    RemoveCopy,
    ReportStatus,
    Step,
    Wait,
    location_to_query,
    plan,
)

Document = dict[str, Any]
SERVER = "https://a:6443"
LINKED = CopyLocation("a", "ns", "x", SERVER, "copy-uid")
UNLINKED = CopyLocation("a", "ns", "x")
LOST = RemoteUnreachable("Unreachable", "no answer", seconds=50.0)


def a_job(
    record: CopyLocation | None = LINKED,
    *,
    deleting: bool = False,
    conditions: tuple[str, ...] = (),
    annotations: dict[str, str] | None = None,
    finalizers: tuple[str, ...] = (names.FINALIZER,),
    **spec: Any,
) -> Document:
    given = {names.TARGET: "a", **(annotations or {})}
    if record is not None:
        given[names.RECORD] = record_text(record)
    metadata: Document = {
        "name": "x",
        "namespace": "ns",
        "uid": "job-uid",
        "annotations": given,
        "finalizers": list(finalizers),
    }
    if deleting:
        metadata["deletionTimestamp"] = "2030-01-01T00:00:00Z"
    template = {"metadata": {"labels": {"job-name": "x", "app": "y"}}, "spec": {"containers": []}}
    return {
        "metadata": metadata,
        "spec": {"managedBy": names.MANAGER, "parallelism": 2, "template": template, **spec},
        "status": {"conditions": [{"type": kind, "status": "True"} for kind in conditions]},
    }


def a_copy(
    uid: str = "copy-uid",
    *,
    origin: str = "job-uid",
    deleting: bool = False,
    over: bool = False,
    job: Document | None = None,
    **spec: Any,
) -> Document:
    document = copy_of(job or a_job(), LINKED)
    document["metadata"]["uid"] = uid
    document["metadata"]["labels"][names.ORIGIN] = origin
    if deleting:
        document["metadata"]["deletionTimestamp"] = "2030-01-01T00:00:00Z"
    if over:
        document["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
    document["spec"] = {**document["spec"], "suspend": False, **spec}
    return document


def found(copy: Document, **more: Any) -> FoundCopy:
    return FoundCopy(copy, server=more.pop("server", SERVER), **more)


def gone(**more: Any) -> Absent:
    return Absent(server=more.pop("server", SERVER), **more)


def planned(job: Document, remote: Remote, *, orphaning: bool = False) -> Step:
    return plan(Facts(read_job(msgspec.json.encode(job)), job, remote, orphaning))


MOVED = {names.TARGET: "b"}
RESTART = {names.WHEN_COPY_DELETED: "Restart"}
PATIENT = {names.LOST_AFTER: "1m"}
IMPATIENT = {names.LOST_AFTER: "30s"}

ROWS: list[tuple[str, Document, Remote, type[Step]]] = [
    # --- the usual way
    ("new", a_job(None, finalizers=()), NotQueried(), ClaimJob),
    ("nothing there yet", a_job(UNLINKED), gone(), CreateCopy),
    ("created, not on record", a_job(UNLINKED), found(a_copy(suspend=True)), LinkCopy),
    ("on record, may start", a_job(), found(a_copy(suspend=True)), ChangeCopy),
    ("runs", a_job(), found(a_copy()), ReportStatus),
    ("other parallelism wanted", a_job(parallelism=5), found(a_copy()), ChangeCopy),
    ("edited there", a_job(), found(a_copy(parallelism=9)), ChangeCopy),
    ("suspended here", a_job(suspend=True), found(a_copy()), ChangeCopy),
    ("deadline there only", a_job(), found(a_copy(activeDeadlineSeconds=5)), ChangeCopy),
    ("over, whatever differs", a_job(parallelism=5), found(a_copy(over=True)), ReportStatus),
    ("finished here", a_job(conditions=("Complete",)), NotQueried(), NothingToDo),
    # --- trouble
    ("no target", a_job(None, annotations={names.TARGET: ""}), NotQueried(), Wait),
    ("bad duration", a_job(annotations={names.LOST_AFTER: "soon"}), NotQueried(), Wait),
    ("out of reach", a_job(), LOST, Wait),
    ("name taken", a_job(UNLINKED), found(a_copy(origin="")), Wait),
    ("name taken by another", a_job(UNLINKED), found(a_copy(origin="other")), Wait),
    ("being deleted there", a_job(), found(a_copy(deleting=True)), Wait),
    ("came late", a_job(), found(a_copy("late-uid", suspend=True)), RemoveCopy),
    # --- the copy is gone
    ("deleted there", a_job(), gone(), Fail),
    ("deleted there, again", a_job(annotations=RESTART), gone(), Relocate),
    ("deleted, Pods run", a_job(annotations=RESTART), gone(pods_left=1), Wait),
    ("deleted, name taken", a_job(), found(a_copy("z", origin="other")), Fail),
    ("another server", a_job(annotations=RESTART), gone(server="https://z"), Wait),
    ("decided", a_job(conditions=("FailureTarget",), annotations=RESTART), gone(), Fail),
    # --- another target
    ("move: still there", a_job(annotations=MOVED), found(a_copy()), RemoveCopy),
    ("move: leaves", a_job(annotations=MOVED), found(a_copy(deleting=True)), Wait),
    ("move: Pods run", a_job(annotations=MOVED), gone(pods_left=2), Wait),
    ("move: gone", a_job(annotations=MOVED), gone(), Relocate),
    ("move: lost", a_job(annotations=MOVED), LOST, Wait),
    ("move: not lost for long", a_job(annotations={**MOVED, **PATIENT}), LOST, Wait),
    ("move: lost for long", a_job(annotations={**MOVED, **IMPATIENT}), LOST, Relocate),
    ("move: never started", a_job(UNLINKED, annotations=MOVED), LOST, Relocate),
    ("move: too late", a_job(annotations=MOVED, conditions=("SuccessCriteriaMet",)),
     found(a_copy()), ReportStatus),
    # --- deletion
    ("delete: there", a_job(deleting=True), found(a_copy()), RemoveCopy),
    ("delete: leaves", a_job(deleting=True), found(a_copy(deleting=True)), Wait),
    ("delete: not on record", a_job(UNLINKED, deleting=True), found(a_copy()), RemoveCopy),
    ("delete: record removed", a_job(None, deleting=True), found(a_copy()), RemoveCopy),
    ("delete: gone", a_job(deleting=True), gone(), Release),
    ("delete: Pods run", a_job(deleting=True), gone(pods_left=1), Wait),
    ("delete: not ours", a_job(UNLINKED, deleting=True), found(a_copy(origin="o")), Release),
    ("delete: lost", a_job(deleting=True), LOST, Wait),
    ("delete: lost, never started", a_job(UNLINKED, deleting=True), LOST, Release),
    ("delete: lost for long", a_job(deleting=True, annotations=IMPATIENT), LOST, Release),
    ("delete: finished before", a_job(deleting=True, conditions=("Failed",)),
     found(a_copy()), RemoveCopy),
    ("delete: released", a_job(deleting=True, finalizers=("other",)), NotQueried(), NothingToDo),
    ("delete: never claimed", a_job(None, deleting=True, finalizers=()), NotQueried(), NothingToDo),
]  # fmt: skip


@pytest.mark.parametrize(("job", "remote", "step"), [row[1:] for row in ROWS],
                         ids=[row[0] for row in ROWS])  # fmt: skip
def test_what_follows(job: Document, remote: Remote, step: type[Step]) -> None:
    assert isinstance(planned(job, remote), step)


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_only_a_copy_on_record_is_ever_started_and_no_record_is_replaced_without_proof(
    row: tuple[str, Document, Remote, type[Step]],
) -> None:
    _, job, remote, _ = row
    step = planned(job, remote)
    view = read_job(msgspec.json.encode(job))
    record = location_to_query(view)
    if isinstance(step, ChangeCopy):
        assert record is not None
        assert step.copy["metadata"]["uid"] == record.uid
    if isinstance(step, CreateCopy):
        assert step.document["spec"]["suspend"] is True
        assert record is not None
        assert not record.uid
    if isinstance(step, Relocate) and record is not None and record.uid and not step.abandoned:
        assert isinstance(remote, Absent | FoundCopy)
        assert not remote.pods_left
    if isinstance(step, RemoveCopy):
        assert isinstance(remote, FoundCopy)
        assert remote.origin == "job-uid", "nobody else's Job is ever deleted"


def test_starting_is_told_from_other_changes() -> None:
    starting = planned(a_job(), found(a_copy(suspend=True)))
    scaling = planned(a_job(parallelism=7), found(a_copy()))
    assert isinstance(starting, ChangeCopy)
    assert starting.starts
    assert isinstance(scaling, ChangeCopy)
    assert not scaling.starts
    assert [str(change) for change in scaling.changes] == ["parallelism 7 (was 2)"]


def test_a_copy_is_not_linked_where_the_server_dropped_fields() -> None:
    rules = [{"action": "Ignore", "onExitCodes": {"operator": "In", "values": [3]}}]
    job = a_job(UNLINKED, podFailurePolicy={"rules": rules})
    copy = a_copy(job=job, suspend=True)
    assert isinstance(planned(job, found(copy)), LinkCopy)
    del copy["spec"]["podFailurePolicy"]
    step = planned(job, found(copy))
    assert isinstance(step, Wait)
    assert step.reason == "FieldsNotKnown"
    assert "spec.podFailurePolicy" in step.message


def test_abandoning_copy_names_what_may_still_run() -> None:
    step = planned(a_job(annotations={**MOVED, **IMPATIENT}), LOST)
    assert isinstance(step, Relocate)
    assert step.abandoned
    assert "copy-uid" in step.message
    assert "may still be running" in step.message
    assert step.record == CopyLocation("b", "ns", "x", attempt=2)


def test_pods_that_are_to_stay_stay_there_too() -> None:
    """The propagation policy is recorded first, because its marks on the Job here are removed."""
    first = planned(a_job(deleting=True), found(a_copy()), orphaning=True)
    assert isinstance(first, RecordState)
    assert first.record.orphaned
    job = a_job(first.record, deleting=True)
    assert planned(job, found(a_copy())) == RemoveCopy("copy-uid", "Orphan")
    assert planned(job, gone(pods_left=3)) == Release()


def test_after_a_step_comes_another_one() -> None:
    """From nothing to a running copy; each step's effect leads to the next, none is repeated."""
    job = a_job(None, finalizers=())
    claim = planned(job, NotQueried())
    assert isinstance(claim, ClaimJob)
    job = a_job(claim.record)
    create = planned(job, gone())
    assert isinstance(create, CreateCopy)
    copy = create.document
    copy["metadata"]["uid"] = "copy-uid"
    link = planned(job, found(copy))
    assert isinstance(link, LinkCopy)
    assert (link.record.uid, link.record.server) == ("copy-uid", SERVER)
    job = a_job(link.record)
    start = planned(job, found(copy))
    assert isinstance(start, ChangeCopy)
    copy["spec"]["suspend"] = False
    assert isinstance(planned(job, found(copy)), ReportStatus)
