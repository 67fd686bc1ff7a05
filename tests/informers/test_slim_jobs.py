"""Finished Jobs in the cache: smaller in memory, with the same attributes for all readers."""

import tracemalloc

import msgspec
import pytest
from msgspec.structs import replace

from onejob.informers.slim_jobs import read_slim_job
from onejob.objects.job import read_job
from onejob.planning.pod.restart_policy import restart_policy_of

POD_SPEC = {"restartPolicy": "OnFailure", "containers": [{"name": "c", "image": "x" * 10_000}]}


def a_document(*conditions: str, number: int = 0) -> bytes:
    stamp = "2026-01-01T12:00:00Z"
    document = {
        "metadata": {
            "name": f"job-{number}",
            "namespace": "default",
            "uid": f"uid-{number}",
            "labels": {"a": "b"},
        },
        "spec": {
            "completions": 3,
            "completionMode": "Indexed",
            "ttlSecondsAfterFinished": 60,
            "selector": {"matchLabels": {"a": "b", "uid": f"uid-{number}"}},
            "template": {"spec": POD_SPEC},
        },
        "status": {
            "startTime": stamp,
            "completionTime": stamp,
            "succeeded": 3,
            "conditions": [
                {"type": kind, "status": "True", "reason": "R", "lastTransitionTime": stamp}
                for kind in conditions
            ],
        },
    }
    return msgspec.json.encode(document)


@pytest.mark.parametrize("condition", ["Complete", "Failed"])
def test_a_finished_job_is_as_it_was_but_for_labels_and_template(condition: str) -> None:
    whole, slim = read_job(a_document(condition)), read_slim_job(a_document(condition))
    assert restart_policy_of(slim) == "OnFailure"
    assert slim.status == whole.status
    assert replace(slim.spec, template=whole.spec.template) == whole.spec
    assert replace(slim.metadata, labels=whole.metadata.labels) == whole.metadata


def test_a_job_that_may_still_make_pods_keeps_its_template() -> None:
    document = a_document("Suspended")
    assert read_slim_job(document) == read_job(document)


def test_a_finished_job_does_not_hold_on_to_its_document() -> None:
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        views = [read_slim_job(a_document("Complete", number=number)) for number in range(1000)]
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (after - before) / len(views) < 2_000
