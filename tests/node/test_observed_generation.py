"""observedGeneration of a Pod: in its status and in each of its conditions."""

from pathlib import Path

import pytest

from onejob.client.base import Patch
from onejob.clock import SystemClock
from onejob.node.simulated import SimulatedRuntime
from onejob.objects.meta import PODS, Key
from tests.node.support import (
    Document,
    a_node,
    a_pod,
    a_process_node,
    an_api,
    process_runtime,
    shell,
    with_spec,
)


def observed(pod: Document) -> set[int]:
    status = pod["status"]
    told = [condition.get("observedGeneration") for condition in status["conditions"]]
    return {status.get("observedGeneration"), *told}


@pytest.mark.parametrize("simulated", [False, True])
async def test_a_pod_that_ran_was_observed_in_its_first_generation(
    tmp_path: Path, simulated: bool
) -> None:
    runtime = SimulatedRuntime(SystemClock()) if simulated else process_runtime(tmp_path)
    async with an_api(tmp_path) as client, a_node(client, runtime) as node:
        ended = await node.run(a_pod("true"))
        assert {entry["type"] for entry in ended["status"]["conditions"]} >= {
            "PodScheduled",
            "PodReadyToStartContainers",
            "Ready",
        }
        assert observed(ended) == {1}


async def test_a_changed_pod_is_observed_anew(tmp_path: Path) -> None:
    async with a_process_node(tmp_path) as node:
        await node.create(shell("sleep 100"))
        running = await node.until("p", lambda p: p["status"]["phase"] == "Running")
        assert observed(running) == {1}
        body = b'{"spec":{"activeDeadlineSeconds":1000}}'
        await node.client.write(Patch(Key(PODS, "default", "p"), body, "merge"))
        changed = await node.until("p", lambda p: p["status"]["observedGeneration"] == 2)
        # The condition about its node is older than the change.
        assert observed(changed) == {1, 2}


async def test_a_pod_that_fits_nowhere_is_observed_too(tmp_path: Path) -> None:
    async with a_process_node(tmp_path) as node:
        pod = a_pod("true", resources={"requests": {"cpu": "100"}})
        await node.create(pod)
        waiting = await node.until("p", lambda p: p["status"].get("conditions"))
        told = waiting["status"]["conditions"][0]
        assert (told["type"], told["observedGeneration"]) == ("PodScheduled", 1)


async def test_conditions_of_running_pod_have_no_reason(tmp_path: Path) -> None:
    """A condition is merged into the stored one, which told why it was False."""
    async with a_process_node(tmp_path) as node:
        init = {"name": "i", "image": "busybox", "command": ["sleep", "0.5"]}
        await node.create(with_spec(shell("sleep 100"), initContainers=[init]))
        waiting = await node.until("p", lambda p: p["status"].get("initContainerStatuses"))
        assert "ContainersNotReady" in {c.get("reason") for c in waiting["status"]["conditions"]}
        running = await node.until("p", lambda p: p["status"]["phase"] == "Running")
        for condition in running["status"]["conditions"]:
            assert condition["status"] == "True"
            assert condition.keys().isdisjoint({"reason", "message"})
