"""In-place resize of containers of the engine."""

from pathlib import Path

import pytest

from onejob.node.podman.limit_changes import read_bytes
from tests.node.limits_support import in_progress, patch, running
from tests.node.podman.support import NEEDS_PODMAN, a_podman_node, containers_of, engine, script
from tests.node.support import the_container, with_spec

pytestmark = NEEDS_PODMAN


async def test_limits_of_a_running_container_change(place: Path) -> None:
    resources = {"requests": {"cpu": "100m"}, "limits": {"cpu": "500m", "memory": "64Mi"}}
    async with a_podman_node(place) as node:
        pod = script("while :; do sleep 1; done", resources=resources)
        await running(node, with_spec(pod, terminationGracePeriodSeconds=0))
        wanted = {"cpu": "250m", "memory": "128Mi"}
        await patch(node, "p", {"limits": wanted})
        await node.until("p", lambda p: the_container(p)["resources"]["limits"] == wanted)
        (name,) = containers_of(place)
        assert memory_limit(name) == 128 << 20
        await patch(node, "p", {"limits": {"memory": "64Ki"}, "requests": {"memory": "64Ki"}})
        pod = await node.until("p", lambda p: in_progress(p).get("reason") == "Error")
        assert "below current usage" in in_progress(pod)["message"]


def memory_limit(name: str) -> int:
    """Return the limit in force, from the container's control group."""
    group = engine("inspect", "--format", "{{.State.CgroupPath}}", name).strip()
    version_2 = Path(f"/sys/fs/cgroup{group}/memory.max")
    version_1 = Path(f"/sys/fs/cgroup/memory{group}/memory.limit_in_bytes")
    return int((version_2 if version_2.exists() else version_1).read_text())


@pytest.mark.parametrize(
    ("text", "expected"),
    [("660KiB", 675840), ("1.5MB", 1_500_000), ("12B", 12), ("2GiB", 2 << 30), ("--", 0)],
)
def test_memory_in_use_is_read_from_the_engines_units(text: str, expected: int) -> None:
    assert read_bytes(text) == expected
