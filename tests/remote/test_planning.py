"""Objects and permissions of a remote run."""

from typing import Any

import pytest

from onejob.cli.manifests.loading import manifest_from_document
from onejob.cli.remote.planning import (
    RUN_LABEL,
    marked,
    needed_access,
    plan_objects,
    same_content,
)
from onejob.gates import FeatureGates
from tests.cli.build import NOON


def a_job(image: str = "busybox", **metadata: Any) -> dict[str, Any]:
    container = {"name": "main", "image": image, "command": ["true"]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "pi", **metadata},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    }


SETTINGS = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "settings"},
    "data": {"lr": "1"},
}


def planned(*documents: dict[str, Any]) -> Any:
    manifests = [manifest_from_document(d, number=n) for n, d in enumerate(documents, 1)]
    return plan_objects(manifests, "batch", FeatureGates(), NOON)


def test_plan_creates_jobs_last_in_their_namespace() -> None:
    objects, problems = planned(a_job(), SETTINGS)
    assert not problems
    assert [(o.planned.resource, o.planned.namespace) for o in objects] == [
        ("configmaps", "batch"),
        ("jobs.batch", "batch"),
    ]


def test_plan_reports_problems_of_all_manifests() -> None:
    bad = a_job("local")
    cron = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
    _, problems = planned(bad, cron)
    texts = [str(problem) for problem in problems]
    assert any("cannot pull the image 'local'" in text for text in texts)
    assert any("does not create a Node" in text for text in texts)


def test_marked_labels_job_and_pods_and_keeps_the_manifest() -> None:
    document = a_job(labels={"a": "b"})
    objects, _ = planned(document)
    made = marked(objects[0].planned, "run-1", 60)
    assert made["metadata"]["labels"] == {"a": "b", RUN_LABEL: "run-1"}
    assert made["spec"]["template"]["metadata"]["labels"] == {RUN_LABEL: "run-1"}
    assert made["spec"]["ttlSecondsAfterFinished"] == 60
    assert "ttlSecondsAfterFinished" not in document["spec"]


def test_needed_access_covers_the_kinds_of_the_run_once() -> None:
    objects, _ = planned(a_job(), a_job(name="e"), SETTINGS)
    access = [str(r) for r in needed_access(objects, cleans_up=False, suspends=False)]
    assert len(access) == len(set(access))
    assert "create jobs.batch in namespace batch" in access
    assert "get pods/log in namespace batch" in access
    assert "create configmaps in namespace batch" in access
    assert not [text for text in access if "secrets" in text or text.startswith("patch")]
    more = [str(r) for r in needed_access(objects, cleans_up=True, suspends=True)]
    assert set(more) - set(access) == {
        "patch jobs.batch in namespace batch",
        "patch configmaps in namespace batch",
    }


@pytest.mark.parametrize(
    ("wanted", "existing", "same"),
    [
        ({"data": {"a": "b"}}, {"data": {"a": "b"}, "metadata": {"uid": "1"}}, True),
        ({"data": {"a": "b"}}, {"data": {"a": "c"}}, False),
        ({"data": {}}, {}, True),
        ({"stringData": {"a": "b"}}, {"data": {"a": "Yg=="}, "type": "Opaque"}, True),
        ({"stringData": {"a": "c"}}, {"data": {"a": "Yg=="}}, False),
    ],
)
def test_same_content_ignores_metadata(wanted: Any, existing: Any, same: bool) -> None:
    assert same_content(wanted, existing) == same
