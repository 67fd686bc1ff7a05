"""Statuses that clients wrote without required fields. Go stores "" for them; onejob nothing."""

import asyncio
import logging
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onejob.api.schema.schema import load_schema
from onejob.api.schema.shapes import ListShape, ObjectShape
from onejob.api.writing.placing import status_with
from onejob.benchmarks.plane import a_job
from onejob.cli.sources.awaiting import WaitCondition as AwaitedCondition
from onejob.client.base import Create, Delete, Patch, Selection
from onejob.diagnosis.ended import finish_of
from onejob.objects.job import is_finished
from onejob.objects.meta import Key
from onejob.wire.errors import Invalid
from onejob.wire.kinds import BY_RESOURCE
from tests.api.crd.build import a_definition
from tests.api.protobuf_support import sample
from tests.server_support import a_plane

pytestmark = pytest.mark.virtual_time

_POD = {"containers": [{"name": "c", "image": "i", "command": ["sleep", "60"]}]}
_TEMPLATE = {"spec": {**_POD, "restartPolicy": "Never"}}

#: Object of each kind whose status a controller or the node reads.
BODIES: dict[str, dict[str, Any]] = {
    "customresourcedefinitions.apiextensions.k8s.io": a_definition(),
    "namespaces": {},
    # Suspended, since simulated Pods end at once and a finished Job's conditions are kept.
    "jobs.batch": {"spec": {"suspend": True, "template": _TEMPLATE}},
    "cronjobs.batch": {
        "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": _TEMPLATE}}}
    },
    "pods": {"spec": _POD},
    "poddisruptionbudgets.policy": {
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}
    },
    "resourcequotas": {"spec": {"hard": {"pods": "100"}}},
}


def sparse_items(shape: ObjectShape) -> list[dict[str, Any]]:
    """Return items with no field, with one only, and with all but one."""
    whole: dict[str, Any] = sample(shape, zero=False)
    one_only = [{name: value} for name, value in whole.items()]
    all_but_one = [{k: v for k, v in whole.items() if k != name} for name in whole]
    return [{}, *one_only, *all_but_one]


def sparse_statuses(resource: str) -> list[dict[str, Any]]:
    kind = BY_RESOURCE[resource]
    status = load_schema().kind(kind.api_version, kind.kind).fields["status"]
    assert isinstance(status, ObjectShape)
    return [
        {name: [item]}
        for name, field in status.fields.items()
        if isinstance(field, ListShape) and isinstance(field.items, ObjectShape)
        for item in sparse_items(field.items)
    ]


@pytest.mark.parametrize("resource", BODIES)
async def test_controllers_work_on_after_sparse_status(
    resource: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kind = BY_RESOURCE[resource]
    namespace = "default" if kind.namespaced else ""
    with caplog.at_level(logging.WARNING):
        async with a_plane(tmp_path) as plane:
            written = 0
            for number, status in enumerate(sparse_statuses(resource)):
                document = {"metadata": {"name": f"a{number}"}, **BODIES[resource]}
                name = document["metadata"]["name"]
                key = Key(resource, namespace, name)
                await plane.client.write(Create(resource, namespace, msgspec.json.encode(document)))
                await asyncio.sleep(2)
                body = msgspec.json.encode({"status": status})
                # Validation may refuse it.
                with suppress(Invalid):
                    await plane.client.write(Patch(key, body, "merge", "status"))
                    written += 1
                if resource == "jobs.batch":
                    await plane.client.write(Patch(key, b'{"spec":{"suspend":false}}', "merge"))
                    await asyncio.sleep(30)
                    job = msgspec.json.decode(await plane.client.get(key))
                    assert job["status"]["succeeded"] == 1, f"not run after {status}"
                await asyncio.sleep(2)
                await plane.client.write(Delete(key, "Background", grace_seconds=0))
                await asyncio.sleep(30)
                left = (await plane.client.list(Selection(resource))).documents
                names = [msgspec.json.decode(each)["metadata"]["name"] for each in left]
                assert name not in names, f"not deleted after {status}"
            assert not plane.failed.done()
            # Later Jobs are not delayed.
            await plane.client.write(a_job("after", completions=1, parallelism=1))
            await asyncio.sleep(60)
            after = msgspec.json.decode(
                await plane.client.get(Key("jobs.batch", "default", "after"))
            )
            assert after["status"]["succeeded"] == 1
            assert written or resource == "resourcequotas"
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []


SPARSE: list[dict[str, str]] = [{}, {"status": "True"}, {"type": "Complete"}]


def test_is_finished_ignores_sparse_conditions() -> None:
    assert not is_finished({"status": {"conditions": SPARSE}})
    complete = {"type": "Complete", "status": "True"}
    assert is_finished({"status": {"conditions": [*SPARSE, complete]}})
    assert finish_of({"status": {"conditions": [*SPARSE, complete]}}) is None


def test_await_ignores_sparse_conditions() -> None:
    document = {"status": {"conditions": SPARSE}}
    assert AwaitedCondition("Complete", "True").judge(document) is None


def test_status_with_adds_condition_to_sparse_ones() -> None:
    scheduled = {"type": "PodScheduled", "status": "True"}
    status = status_with({"status": {"conditions": SPARSE}}, scheduled)
    assert status["conditions"] == [*SPARSE, scheduled]
