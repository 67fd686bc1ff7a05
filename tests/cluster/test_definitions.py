"""Definitions of Workflow and CronWorkflow for other clusters, served by our own API as such."""

from pathlib import Path

import pytest
from msgspec import json

from onejob.client.base import Create
from onejob.cluster.definitions import definitions
from onejob.wire.errors import Invalid
from tests.build import a_task, a_workflow
from tests.controllers.housekeeping import a_house

#: Under another group: ours serves the kinds itself.
GROUP = "example.com"


def renamed(definition: dict[str, object]) -> dict[str, object]:
    text = json.encode(definition).replace(b"onejob.dev", GROUP.encode())
    found: dict[str, object] = json.decode(text)
    return found


@pytest.mark.virtual_time
async def test_definitions_are_accepted_and_prune_nothing(tmp_path: Path) -> None:
    import asyncio

    async with a_house(tmp_path, "definitions") as house:
        for definition in definitions():
            await house.create(
                "customresourcedefinitions.apiextensions.k8s.io", renamed(definition), namespace=""
            )
        await asyncio.sleep(5)
        document = a_workflow("wf", a_task("a", when="true"), a_task("b", "a:Failed"))
        document["apiVersion"] = f"{GROUP}/v1alpha1"
        document["spec"]["tasks"][0]["template"]["metadata"] = {"labels": {"x": "y"}}
        key = await house.create(f"workflows.{GROUP}", document)
        stored = await house.get(key)
        assert stored["spec"] == document["spec"]
        twice = a_workflow("twice", a_task("a"), a_task("a"), metadata={"namespace": "default"})
        twice["apiVersion"] = f"{GROUP}/v1alpha1"
        with pytest.raises(Invalid, match="Duplicate value"):
            await house.client.write(Create(key.resource, "default", json.encode(twice)))


def test_definitions_have_a_moderate_size() -> None:
    # kubectl apply keeps a copy in an annotation, of at most 256 kB.
    assert all(len(json.encode(definition)) < 200_000 for definition in definitions())
