"""Limits of containers: the condition of tests that need control groups, and resizes of Pods."""

from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from onejob.client.base import Patch
from onejob.node.process.cgroups import ControlGroups
from onejob.objects.meta import PODS, Key
from tests.node.support import Document, Node, condition


def _problem() -> str:
    found = ControlGroups.find(Path("/onejob-tests"), datetime.now(UTC))  # noqa: TID251
    found.remove_all()
    return found.problem


needs_groups = pytest.mark.skipif(
    bool(_problem()), reason=f"control groups cannot be written here: {_problem()}"
)


async def patch(node: Node, name: str, resources: Document) -> None:
    body = {"spec": {"containers": [{"name": "c", "resources": resources}]}}
    key = Key(PODS, "default", name)
    await node.client.write(Patch(key, msgspec.json.encode(body), "strategic", "resize"))


async def running(node: Node, pod: Document) -> Document:
    await node.create(pod)
    name = pod["metadata"]["name"]
    return await node.until(name, lambda p: "running" in state_of(p))


def state_of(pod: Document) -> Document:
    statuses = pod["status"].get("containerStatuses")
    return statuses[0]["state"] if statuses else {}


def in_progress(pod: Document) -> Document:
    return condition(pod, "PodResizeInProgress") or {}
