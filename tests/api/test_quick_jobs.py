"""A quick report on a Job leads to the same document as a general one, byte for byte."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onejob.api.service import Service
from onejob.api.writing.quick_jobs import QuickJobs
from onejob.objects.meta import JOBS, Key
from onejob.wire.errors import ApiError
from onejob.wire.kinds import BY_RESOURCE
from onejob.wire.requests import DeleteOptions, Outcome, Target, WriteOptions
from tests.api.two_services import TRUSTED, with_two_services

JOB = BY_RESOURCE[JOBS]
KEY = Key(JOBS, "default", "j")

Doc = dict[str, Any]

NOW = "2026-01-01T12:00:00Z"
STARTED: Doc = {
    "startTime": NOW,
    "active": 2,
    "ready": 0,
    "terminating": 0,
    "uncountedTerminatedPods": {},
}
COMPLETE = [
    {"type": "SuccessCriteriaMet", "status": "True", "lastTransitionTime": NOW},
    {"type": "Complete", "status": "True", "lastTransitionTime": NOW, "message": "é"},
]


class Pair:
    """Two equal services: what is written quickly to one is written in general to the other."""

    def __init__(self, quick: Service, general: Service) -> None:
        self.services = (quick, general)
        self.general = general.writes
        self.quick = QuickJobs(quick.writes)
        for service in self.services:
            service.writes.create(JOB, "default", a_job(), TRUSTED)
        self.patch(STARTED)

    @property
    def revision(self) -> int:
        return self.services[0].store.staged_revision

    def body(self, status: Doc, revision: int = 0) -> bytes:
        metadata = {"resourceVersion": str(revision or self.revision)}
        return msgspec.json.encode({"metadata": metadata, "status": status})

    def patch(self, status: Doc) -> Outcome:
        body = self.body(status)
        general = in_general(self.services[1], body)
        quick = self.quick.patch_status(KEY, body, TRUSTED)
        assert quick is not None, "the quick path declined"
        assert quick == general
        return quick


def in_general(service: Service, body: bytes) -> Outcome:
    target = Target(JOB, "default", "j", "status")
    return service.writes.patch(target, "merge", msgspec.json.decode(body), TRUSTED)


def a_job() -> Doc:
    return {
        "metadata": {"name": "j", "labels": {"resourceVersion": "no"}},
        "spec": {
            "completions": 5,
            "parallelism": 2,
            "template": {
                "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
            },
        },
    }


def compared(folder: Path, test: Callable[[Pair], Awaitable[None]]) -> None:
    with_two_services(folder, lambda quick, general: test(Pair(quick, general)))


def test_the_reports_of_a_whole_life_lead_to_the_same_job(tmp_path: Path) -> None:
    async def test(pair: Pair) -> None:
        for status in (
            {"ready": 2},
            {"active": 1, "ready": 1, "uncountedTerminatedPods": {"succeeded": ["u1", "u2"]}},
            {"succeeded": 2, "active": 2, "uncountedTerminatedPods": {"succeeded": None}},
            {"uncountedTerminatedPods": {"failed": ["u3"]}},
            {"failed": 1, "uncountedTerminatedPods": {"failed": None}},
            {"conditions": [{"type": "Suspended", "status": "False", "lastTransitionTime": NOW}]},
            {"conditions": COMPLETE[:1], "active": None, "ready": 0, "succeeded": 5},
            {"conditions": COMPLETE, "completionTime": NOW},
        ):
            pair.patch(status)
        assert pair.quick.patch_status(KEY, pair.body({"ready": 0}), TRUSTED) is None, "it is over"

    compared(tmp_path, test)


@pytest.mark.parametrize(
    "status",
    [
        {"active": -1},
        {"ready": 3},
        {"uncountedTerminatedPods": {"succeeded": ["u", "u"]}},
        {"completedIndexes": "0"},
        {"startTime": "2026-01-01T13:00:00Z"},
        {"conditions": COMPLETE},
    ],
)
def test_what_a_job_may_not_be_given_is_left_for_the_general_path_to_refuse(
    tmp_path: Path, status: Doc
) -> None:
    async def test(pair: Pair) -> None:
        before = pair.revision
        assert pair.quick.patch_status(KEY, pair.body(status), TRUSTED) is None
        assert pair.revision == before
        with pytest.raises(ApiError, match="is invalid"):
            in_general(pair.services[0], pair.body(status))

    compared(tmp_path, test)


@pytest.mark.parametrize(
    "body",
    [
        {"status": {"active": 1}},
        {"metadata": {"resourceVersion": "1"}, "status": {"active": 1}},
        {"metadata": {"labels": {"a": "b"}}, "status": {"active": 1}},
        {"metadata": {"resourceVersion": "4"}, "spec": {}, "status": {"active": 1}},
        {"metadata": {"resourceVersion": "4"}, "status": None},
        {"metadata": {"resourceVersion": "4"}, "status": {}},
        {"metadata": {"resourceVersion": "4"}, "status": {"creationTime": NOW}},
    ],
)
def test_whatever_is_out_of_the_ordinary_is_declined(tmp_path: Path, body: Doc) -> None:
    async def test(pair: Pair) -> None:
        assert pair.revision == 4
        assert pair.quick.patch_status(KEY, msgspec.json.encode(body), TRUSTED) is None

    compared(tmp_path, test)


def test_a_job_that_others_wrote_or_deleted_is_looked_at_anew(tmp_path: Path) -> None:
    async def test(pair: Pair) -> None:
        scaled = {"spec": {"parallelism": 1}}
        for service in pair.services:
            service.writes.patch(Target(JOB, "default", "j"), "merge", scaled, TRUSTED)
        pair.patch({"active": 1})
        pair.patch({"ready": 1})
        for service in pair.services:
            service.writes.delete(Target(JOB, "default", "j"), DeleteOptions(propagation="Orphan"))
        declined = pair.quick.patch_status(KEY, pair.body({"ready": 0}), TRUSTED)
        assert declined is None, "it may vanish with a write"

    compared(tmp_path, test)


def test_people_never_take_the_quick_path(tmp_path: Path) -> None:
    async def test(pair: Pair) -> None:
        assert pair.quick.patch_status(KEY, pair.body({"active": 1}), WriteOptions()) is None

    compared(tmp_path, test)
