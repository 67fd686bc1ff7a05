"""Objects that an earlier version accepted and today's validation refuses."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onejob.api.documents import at_revision
from onejob.client.base import Create, Patch, Selection
from onejob.control_plane import ControlPlane
from onejob.diagnosis.cronjobs import explain_cronjob
from onejob.diagnosis.jobs import explain_job
from onejob.node.simulated import DURATION
from onejob.objects.meta import CRONJOBS, EVENTS, JOBS, PODS, Key
from onejob.store.base import Stored
from onejob.wire.errors import Invalid
from tests.store.support import a_store
from tests.upgrade.support import a_plane

pytestmark = pytest.mark.virtual_time

PI = Key(JOBS, "default", "pi")
NIGHTLY = Key(CRONJOBS, "default", "nightly")
FIELD = "securityContext.seccompProfile.type"
#: A value that every version accepts, and one that earlier versions did not check.
ACCEPTED, REFUSED = b'"RuntimeDefault"', b'"Foo"'
TEMPLATE = {
    "metadata": {"annotations": {DURATION: "60"}},
    "spec": {
        "restartPolicy": "Never",
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{"name": "c", "image": "i"}],
    },
}

Document = dict[str, Any]


def job(**spec: Any) -> Document:
    spec = {"template": TEMPLATE, "backoffLimit": 0, **spec}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": PI.name}, "spec": spec}


def cronjob() -> Document:
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": NIGHTLY.name},
        "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": TEMPLATE}}},
    }


async def upgraded(
    folder: Path, document: Document, test: Callable[[ControlPlane], Awaitable[None]]
) -> None:
    """Create an object, store it and its Pods with the refused value, and run `test` on a server
    that is started then."""
    plane = await a_plane(folder)
    resource = JOBS if document["kind"] == "Job" else CRONJOBS
    await plane.client.write(Create(resource, "default", msgspec.json.encode(document)))
    await asyncio.sleep(5)
    await plane.stop()
    await _store_refused_values(folder)
    plane = await a_plane(folder)
    try:
        await asyncio.sleep(5)
        await test(plane)
    finally:
        await plane.stop()


async def _store_refused_values(folder: Path) -> None:
    async with a_store(folder / "onejob.db") as store:
        for resource in (JOBS, CRONJOBS, PODS):
            for stored in store.list(resource).items:
                assert ACCEPTED in stored.value
                store.stage(stored.key, stored.revision, partial(_with_refused_value, stored))
        await store.durable(store.staged_revision)


def _with_refused_value(stored: Stored, revision: int) -> bytes:
    return at_revision(stored.value.replace(ACCEPTED, REFUSED), stored.revision, revision)


async def patch(plane: ControlPlane, key: Key, spec: Document) -> None:
    await plane.client.write(Patch(key, msgspec.json.encode({"spec": spec}), "merge"))


async def documents(plane: ControlPlane, resource: str) -> list[Document]:
    return list(map(msgspec.json.decode, (await plane.client.list(Selection(resource))).documents))


async def the_job(plane: ControlPlane) -> Document:
    found: Document = msgspec.json.decode(await plane.client.get(PI))
    return found


async def test_running_pods_of_job_with_refused_template_complete_it(tmp_path: Path) -> None:
    async def test(plane: ControlPlane) -> None:
        assert (await the_job(plane))["status"]["active"] == 1
        await asyncio.sleep(120)
        status = (await the_job(plane))["status"]
        assert [c["type"] for c in status["conditions"]][-1] == "Complete"
        assert status["succeeded"] == 1

    await upgraded(tmp_path, job(), test)


async def test_job_with_refused_template_can_be_updated(tmp_path: Path) -> None:
    async def test(plane: ControlPlane) -> None:
        await patch(plane, PI, {"parallelism": 3, "activeDeadlineSeconds": 1000})
        assert (await the_job(plane))["spec"]["parallelism"] == 3
        selector = {"nodeSelector": {"a": "b"}}
        await patch(plane, PI, {"template": {"spec": selector}})
        worse = {"securityContext": {"seccompProfile": {"type": "Bar"}}}
        with pytest.raises(Invalid, match="immutable"):
            await patch(plane, PI, {"template": {"spec": worse}})
        with pytest.raises(Invalid, match="parallelism"):
            await patch(plane, PI, {"parallelism": -1})

    await upgraded(tmp_path, job(suspend=True), test)


async def test_cronjob_with_refused_template_can_be_updated(tmp_path: Path) -> None:
    async def test(plane: ControlPlane) -> None:
        await patch(plane, NIGHTLY, {"suspend": True})
        context = {"seccompProfile": {"type": "Bar"}}
        template = {"spec": {"template": {"spec": {"securityContext": context}}}}
        with pytest.raises(Invalid, match="Bar"):
            await patch(plane, NIGHTLY, {"jobTemplate": template})
        context["seccompProfile"]["type"] = "Unconfined"
        await patch(plane, NIGHTLY, {"jobTemplate": template})

    await upgraded(tmp_path, cronjob(), test)


async def test_cronjob_with_refused_template_explains_why_it_creates_no_job(tmp_path: Path) -> None:
    async def test(plane: ControlPlane) -> None:
        await asyncio.sleep(90)
        assert await documents(plane, JOBS) == []
        (document,) = await documents(plane, CRONJOBS)
        found = explain_cronjob(
            document,
            [],
            plane.service.clock.now(),
            local_zone="UTC",
            events=await documents(plane, EVENTS),
        )
        assert found.state == "cronjob/nightly cannot create its Job."
        assert f"spec.template.spec.{FIELD}: Unsupported value" in found.cause[0]
        assert found.next[0] == f"correct spec.jobTemplate.spec.template.spec.{FIELD}"

    await upgraded(tmp_path, cronjob(), test)


async def test_pod_with_refused_spec_can_be_updated(tmp_path: Path) -> None:
    async def test(plane: ControlPlane) -> None:
        (pod,) = await documents(plane, PODS)
        key = Key(PODS, "default", pod["metadata"]["name"])
        await patch(plane, key, {"activeDeadlineSeconds": 1000})
        with pytest.raises(Invalid, match="may not change"):
            await patch(plane, key, {"hostNetwork": True})

    await upgraded(tmp_path, job(), test)


async def test_job_with_refused_template_explains_why_it_creates_no_pods(tmp_path: Path) -> None:
    async def test(plane: ControlPlane) -> None:
        await patch(plane, PI, {"suspend": False})
        await asyncio.sleep(30)
        assert await documents(plane, PODS) == []
        events = await documents(plane, EVENTS)
        failed = [event["message"] for event in events if event["reason"] == "FailedCreate"]
        assert failed
        assert all(f"spec.{FIELD}: Unsupported value" in message for message in failed)
        found = explain_job(await the_job(plane), [], plane.service.clock.now(), events=events)
        assert found.state == "job/pi cannot create its Pods."
        assert f"spec.{FIELD}: Unsupported value" in found.cause[0]
        assert found.next[0] == (
            f"correct spec.template.spec.{FIELD}: delete the Job and create it anew, because its "
            "template is immutable"
        )

    await upgraded(tmp_path, job(suspend=True), test)
