"""Preconditions of the deletions that controllers send."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from onejob.api.service import Service
from onejob.client.base import Delete, Op, Result, Written
from onejob.client.local import LocalClient
from onejob.objects.meta import CRONJOBS, PODS
from onejob.objects.pod import Pod
from tests.build import a_cronjob
from tests.controllers.housekeeping import House, a_house

pytestmark = pytest.mark.virtual_time

GROUP = "example.org"
DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"widgets.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}


class RecordingDeletions(LocalClient):
    """Client that records the deletions sent through it."""

    def __init__(self, service: Service) -> None:
        super().__init__(service)
        self.deletions: list[Delete] = []

    async def write(self, op: Op) -> Written:
        self._record([op])
        return await super().write(op)

    async def write_many(self, ops: Sequence[Op]) -> Sequence[Result]:
        self._record(ops)
        return await super().write_many(ops)

    def _record(self, ops: Sequence[Op]) -> None:
        self.deletions += [op for op in ops if isinstance(op, Delete)]


async def test_controllers_name_the_uid_of_each_object_they_delete(tmp_path: Path) -> None:
    """Without it, a new object of the same name could be deleted instead."""
    clients: list[RecordingDeletions] = []

    def recording(service: Service) -> RecordingDeletions:
        clients.append(RecordingDeletions(service))
        return clients[0]

    def sent() -> set[tuple[str, str]]:
        """Return resource and name of each deletion since the last call."""
        deletions, clients[0].deletions = clients[0].deletions, []
        assert all(deletion.uid for deletion in deletions), deletions
        return {(deletion.key.resource, deletion.key.name) for deletion in deletions}

    def ending_kept(pod: Pod) -> int | None:
        return 0 if pod.metadata.name.startswith("kept-") else None

    which = ("cronjobs", "jobs", "pod_gc", "namespaces", "definitions")
    async with a_house(
        tmp_path, *which, client_of=recording, terminated_limit=1, script=ending_kept
    ) as house:
        await scale_down_a_job(house)
        assert {resource for resource, _ in sent()} == {PODS}
        await finish_pods(house)
        assert (PODS, "pod-0") in sent()
        await run_cronjob(house, "replaced", concurrencyPolicy="Replace")
        assert {name.rpartition("-")[0] for _, name in sent()} >= {"replaced"}
        await run_cronjob(house, "kept", successfulJobsHistoryLimit=0)
        assert {name.rpartition("-")[0] for _, name in sent()} >= {"kept"}
        await delete_a_namespace(house)
        assert ("configmaps", "in-it") in sent()
        await delete_a_definition(house)
        assert (f"widgets.{GROUP}", "a") in sent()


async def scale_down_a_job(house: House) -> None:
    job = await house.a_job("job", parallelism=3)
    await asyncio.sleep(5)
    await house.patch(job, {"spec": {"parallelism": 1}})
    await asyncio.sleep(5)


async def finish_pods(house: House) -> None:
    for number in range(3):
        pod = await house.a_pod(f"pod-{number}")
        await house.patch(pod, {"status": {"phase": "Succeeded"}}, "status")
    await asyncio.sleep(60)


async def run_cronjob(house: House, name: str, **spec: Any) -> None:
    cronjob = await house.create(CRONJOBS, a_cronjob(name, **spec))
    await asyncio.sleep(121)
    await house.patch(cronjob, {"spec": {"suspend": True}})


async def delete_a_namespace(house: House) -> None:
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "space"}}
    namespace = await house.create("namespaces", space, "")
    in_it = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "in-it"}}
    await house.create("configmaps", in_it, "space")
    await asyncio.sleep(1)
    await house.delete(namespace)
    await asyncio.sleep(10)


async def delete_a_definition(house: House) -> None:
    definition = await house.create(DEFINITIONS, DEFINITION, "")
    await asyncio.sleep(10)
    widget = {"apiVersion": f"{GROUP}/v1", "kind": "Widget", "metadata": {"name": "a"}}
    await house.create(f"widgets.{GROUP}", widget)
    await house.delete(definition)
    await asyncio.sleep(10)
