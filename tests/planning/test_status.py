"""Status patches: a planned status becomes the smallest patch that preserves other fields."""

from typing import Any

import msgspec

from onejob.api.writing.patching import merge_patch
from onejob.objects.job import JobStatus, UncountedPods
from onejob.planning.job.status import status_document, status_patch, with_status
from tests.planning.build import NOON, a_job, carried_out, plan, some_pods, stamp


def patch(before: dict[str, Any], **after: Any) -> dict[str, Any]:
    job = a_job(status=before, metadata={"resourceVersion": "7"})
    status = msgspec.structs.replace(job.status, **after)
    body: dict[str, Any] = msgspec.json.decode(status_patch(job, status))
    assert body["metadata"] == {"resourceVersion": "7"}
    changes: dict[str, Any] = body["status"]
    return changes


def test_status_patch_contains_only_changes() -> None:
    before = {"active": 2, "ready": 1, "failed": 3, "startTime": stamp(NOON)}
    assert patch(before, ready=2) == {"ready": 2}
    assert patch(before) == {}


def test_status_patch_removes_zero_and_none() -> None:
    before = {"active": 2, "startTime": stamp(NOON), "failedIndexes": "1"}
    changes = patch(before, active=0, start_time=None, failed_indexes="")
    assert changes == {"active": None, "startTime": None, "failedIndexes": ""}


def test_a_list_that_became_empty_is_removed_from_within_its_object() -> None:
    before = {"uncountedTerminatedPods": {"failed": ["a"], "succeeded": ["b"]}}
    changes = patch(before, uncounted_terminated_pods=UncountedPods(failed=("a", "c")))
    lists = {"failed": ["a", "c"], "succeeded": None}
    assert changes == {"uncountedTerminatedPods": lists}
    assert merge_patch(before, changes) == {"uncountedTerminatedPods": {"failed": ["a", "c"]}}


def test_conditions_of_unknown_types_survive_a_verdict() -> None:
    custom = {
        "type": "acme.io/Checked",
        "status": "True",
        "reason": "R",
        "message": "m",
        "lastProbeTime": stamp(NOON),
    }
    stored = {"conditions": [custom], "futureField": {"kept": True}}
    job = a_job(backoffLimit=0, status={**stored, "failed": 1})
    accounting = carried_out(plan(job, []))
    assert accounting.write is not None
    body = msgspec.json.decode(status_patch(job, accounting.write.status))
    result = merge_patch(stored, body["status"])
    assert result["conditions"][0] == custom
    assert [condition["type"] for condition in result["conditions"]] == [
        "acme.io/Checked",
        "FailureTarget",
    ]
    assert result["futureField"] == {"kept": True}


def test_an_empty_list_object_is_printed() -> None:
    status = JobStatus(uncounted_terminated_pods=UncountedPods(), ready=0)
    assert status_document(status) == {"uncountedTerminatedPods": {}, "ready": 0}


def test_the_second_write_builds_on_the_first() -> None:
    job = a_job(completions=5)
    accounting = carried_out(plan(job, some_pods("F")))
    assert accounting.write is not None
    between = with_status(job, accounting.write.status, "8")
    body = msgspec.json.decode(status_patch(between, accounting.write.status))
    assert body == {"metadata": {"resourceVersion": "8"}, "status": {}}
