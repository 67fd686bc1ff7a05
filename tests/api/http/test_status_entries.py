"""managedFields of a status that our own controllers and node write, computed on read."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onejob.client.base import Create
from onejob.store.history import CommitTimes
from tests.api.http.raw_requests import Requests, with_requests

JOBS = "/apis/batch/v1/namespaces/default/jobs"
PODS = "/api/v1/namespaces/default/pods"
OURS = "kube-controller-manager"
TEMPLATE = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}


def job(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"template": TEMPLATE, **spec}}


def is_complete(found: dict[str, Any]) -> bool:
    return "completionTime" in found["status"]


def entry(found: dict[str, Any], manager: str) -> dict[str, Any]:
    entries: list[dict[str, Any]] = found["metadata"]["managedFields"]
    ours = [item for item in entries if item.get("subresource") == "status"]
    (one,) = [item for item in ours if item["manager"] == manager]
    return one


def managers(found: dict[str, Any]) -> set[str]:
    return {item["manager"] for item in found["metadata"]["managedFields"]}


async def stored(requests: Requests, name: str) -> dict[str, Any]:
    """Return the stored object, which lists show."""
    found: dict[str, Any]
    (found,) = (await requests.get(f"{JOBS}?fieldSelector=metadata.name={name}"))["items"]
    return found


def test_job_status_has_managed_fields_entry_with_time(tmp_path: Path) -> None:
    async def test(requests: Requests) -> None:
        await requests.ok("POST", f"{JOBS}?fieldManager=me", job("j"))
        found = await requests.until(f"{JOBS}/j", is_complete)
        ours = entry(found, OURS)
        assert ours["operation"] == "Update"
        assert ours["apiVersion"] == "batch/v1"
        assert ours["fieldsType"] == "FieldsV1"
        assert ours["fieldsV1"]["f:status"].keys() == {f"f:{name}" for name in found["status"]}
        assert ours["time"] >= found["status"]["startTime"]
        assert managers(found) == {"me", OURS}
        # The entry is computed on read, not stored.
        kept = await stored(requests, "j")
        assert managers(kept) == {"me"}

    with_requests(tmp_path, test)


def test_pods_and_nodes_are_the_kubelets(tmp_path: Path) -> None:
    async def test(requests: Requests) -> None:
        await requests.ok("POST", JOBS, job("j"))
        await requests.until(f"{JOBS}/j", is_complete)
        (pod,) = (await requests.get(PODS))["items"]
        found = await requests.get(f"{PODS}/{pod['metadata']['name']}")
        fields = entry(found, "kubelet")["fieldsV1"]["f:status"]
        assert {"f:phase", "f:containerStatuses", "f:conditions"} <= fields.keys()
        assert 'k:{"type":"Ready"}' in fields["f:conditions"]
        assert "f:qosClass" not in fields
        node = await requests.get("/api/v1/nodes/node")
        assert "f:capacity" in entry(node, "kubelet")["fieldsV1"]["f:status"]
        # A Pod without any status has no entry.
        waiting = {"metadata": {"name": "w"}, "spec": {**TEMPLATE["spec"], "schedulerName": "x"}}
        await requests.ok("POST", PODS, waiting)
        assert "kubelet" not in managers(await requests.get(f"{PODS}/w"))

    with_requests(tmp_path, test)


def test_update_with_unmodified_object_changes_nothing(tmp_path: Path) -> None:
    async def test(requests: Requests) -> None:
        await requests.ok("POST", f"{JOBS}?fieldManager=me", job("j"))
        found = await requests.until(f"{JOBS}/j", is_complete)
        revision = found["metadata"]["resourceVersion"]
        for place in ("", "/status"):
            answer = await requests.ok("PUT", f"{JOBS}/j{place}?fieldManager=other", found)
            assert answer["metadata"]["resourceVersion"] == revision
        found["metadata"]["labels"] = {"a": "b"}
        await requests.ok("PUT", f"{JOBS}/j?fieldManager=other", found)
        assert managers(await stored(requests, "j")) == {"me", "other"}

    with_requests(tmp_path, test)


@pytest.mark.parametrize("subresource", ["", "/status"])
@pytest.mark.parametrize(
    ("method", "content_type", "body"),
    [
        ("PUT", "application/json", {}),
        ("PATCH", "application/json-patch+json", []),
        ("PATCH", "application/merge-patch+json", {}),
        ("PATCH", "application/strategic-merge-patch+json", {}),
        ("PATCH", "application/apply-patch+yaml", {"apiVersion": "batch/v1", "kind": "Job"}),
    ],
)
def test_write_that_changes_nothing_is_answered_with_the_object_that_get_returns(
    tmp_path: Path, method: str, content_type: str, body: Any, subresource: str
) -> None:
    """Ansible compares the two to report whether it has changed the object."""

    async def test(requests: Requests) -> None:
        await requests.ok("POST", f"{JOBS}?fieldManager=me", job("j"))
        found = await requests.until(f"{JOBS}/j", is_complete)
        path = f"{JOBS}/j{subresource}?fieldManager=me"
        sent = found if method == "PUT" else body
        for place in (path, f"{path}&dryRun=All"):
            answer = await requests.ok(method, place, sent, content_type=content_type)
            if "apply" in content_type:
                # The entry of the apply itself is new.
                assert entry(answer, OURS) == entry(await requests.get(f"{JOBS}/j"), OURS)
            else:
                assert answer == found

    with_requests(tmp_path, test)


def test_write_is_answered_with_the_object_that_get_returns_afterwards(tmp_path: Path) -> None:
    async def test(requests: Requests) -> None:
        await requests.ok("POST", f"{JOBS}?fieldManager=me", job("j"))
        found = await requests.until(f"{JOBS}/j", is_complete)
        merge = "application/merge-patch+json"
        label: Any = {"metadata": {"labels": {"a": "b"}}}
        path = f"{JOBS}/j?fieldManager=me"
        tried = await requests.ok("PATCH", f"{path}&dryRun=All", label, content_type=merge)
        assert tried["metadata"]["labels"]["a"] == "b"
        assert managers(tried) == {"me", OURS}
        # A dry run does not change the stored object.
        assert await requests.get(f"{JOBS}/j") == found
        answer = await requests.ok("PATCH", path, label, content_type=merge)
        assert managers(answer) == {"me", OURS}
        assert answer == await requests.get(f"{JOBS}/j")
        (pod,) = (await requests.get(PODS))["items"]
        place = f"{PODS}/{pod['metadata']['name']}"
        answer = await requests.ok("PATCH", place, label, content_type=merge)
        assert answer == await requests.get(place)
        # The response to a deletion is the deleted object.
        deleted = await requests.ok("DELETE", place)
        assert "kubelet" in managers(deleted)

    with_requests(tmp_path, test)


def test_managed_fields_show_status_writes_of_other_clients(
    tmp_path: Path,
) -> None:
    """With two controllers for one Job, the last writer of a field owns it."""

    async def test(requests: Requests) -> None:
        spec = {"suspend": True, "completions": 1}
        await requests.ok("POST", f"{JOBS}?fieldManager=me", job("j", **spec))
        await requests.until(f"{JOBS}/j", lambda found: found["status"].get("conditions"))
        ready = {"status": {"active": 1, "ready": 1}}
        merge = "application/merge-patch+json"
        path = f"{JOBS}/j/status?fieldManager=stranger"
        found = await requests.ok("PATCH", path, ready, content_type=merge)
        theirs: dict[str, Any] = {"f:status": {"f:active": {}, "f:ready": {}}}
        assert entry(found, "stranger")["fieldsV1"] == theirs
        found = await requests.until(f"{JOBS}/j", lambda found: found["status"].get("ready") == 0)
        assert "f:ready" in entry(found, OURS)["fieldsV1"]["f:status"]
        assert managers(found) == {"me", OURS}

    with_requests(tmp_path, test)


def test_of_a_job_without_managed_fields_the_other_writer_is_known(tmp_path: Path) -> None:
    """Created in this process, as by the CronJob controller, and run by another controller."""

    async def test(requests: Requests) -> None:
        document = job("j", managedBy="example.com/other")
        await requests.server.plane.client.write(
            Create("jobs.batch", "default", msgspec.json.encode(document))
        )
        assert "managedFields" not in (await requests.get(f"{JOBS}/j"))["metadata"]
        body = {"status": {"active": 1, "startTime": "2026-01-01T00:00:00Z"}}
        path = f"{JOBS}/j/status?fieldManager=other"
        await requests.ok("PATCH", path, body, content_type="application/merge-patch+json")
        found = await requests.get(f"{JOBS}/j")
        assert managers(found) == {"other"}
        # The first apply still finds that other managers owned the rest before.
        applied = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "j"},
            "spec": {"parallelism": 2},
        }
        path = f"{JOBS}/j?fieldManager=applier"
        code, refusal = await requests(
            "PATCH", path, applied, content_type="application/apply-patch+yaml"
        )
        assert code == 409
        assert "before-first-apply" in refusal["message"]

    with_requests(tmp_path, test)


def test_the_time_of_a_revision_is_known_to_the_second() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    times = CommitTimes(10)
    times.committed(12, now)
    times.committed(15, now + timedelta(seconds=0.5))
    times.committed(16, now + timedelta(seconds=3))
    # The clock was set back.
    times.committed(20, now - timedelta(hours=1))
    assert [times.at(revision) for revision in (10, 11, 15, 16, 17, 20, 21)] == [
        None, now, now, now + timedelta(seconds=3), now - timedelta(hours=1),
        now - timedelta(hours=1), None,
    ]  # fmt: skip
