"""States of Jobs in one word, for lists."""

from typing import Any

import pytest

from onejob.diagnosis.job_states import job_state

_QUEUED = {"annotations": {"onejob.dev/queued": ""}}


def _failed(**more: Any) -> dict[str, Any]:
    return {"conditions": [{"type": "Failed", "status": "True"}], **more}


@pytest.mark.parametrize(
    ("metadata", "spec", "status", "expected"),
    [
        ({}, {}, {}, "Waiting"),
        ({}, {}, {"active": 1}, "Running"),
        ({}, {}, {"active": 1, "failed": 1}, "Waiting"),
        ({}, {}, {"active": 2, "ready": 1, "failed": 1}, "Running"),
        ({}, {}, {"failed": 1}, "Back-off"),
        ({}, {"suspend": True}, {}, "Suspended"),
        (_QUEUED, {"suspend": True}, {}, "Queued"),
        (_QUEUED, {}, {"active": 1}, "Running"),
        ({"deletionTimestamp": "2030-01-01T00:00:00Z"}, {}, {"active": 1}, "Ending"),
        ({}, {"suspend": True}, _failed(), "Failed"),
        ({}, {"managedBy": "example.com/other"}, {}, "Elsewhere"),
        ({}, {"managedBy": "example.com/other"}, {"active": 1}, "Running"),
        ({}, {"managedBy": "kubernetes.io/job-controller"}, {}, "Waiting"),
    ],
)
def test_state_of_a_job(
    metadata: dict[str, Any], spec: dict[str, Any], status: dict[str, Any], expected: str
) -> None:
    assert job_state({"metadata": metadata, "spec": spec, "status": status}) == expected
