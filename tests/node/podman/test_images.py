"""Unavailable images: the Pod waits and reports the reason; it never fails."""

from pathlib import Path

import pytest

from onejob.client.base import Delete
from onejob.objects.meta import PODS, Key
from tests.node.podman.images_support import ABSENT, waits_for
from tests.node.podman.support import IMAGE, NEEDS_PODMAN, a_podman_node, in_image
from tests.node.support import the_container

pytestmark = NEEDS_PODMAN


@pytest.mark.parametrize(
    ("image", "policy", "reason", "message"),
    [
        (ABSENT, "IfNotPresent", "ErrImagePull", "registry.invalid"),
        (ABSENT, "Always", "ErrImagePull", "registry.invalid"),
        (IMAGE, "Always", "ErrImagePull", "registry.invalid"),
        (ABSENT, "Never", "ErrImageNeverPull", f'"{ABSENT}" is not present with pull policy'),
        ("Not//An:Image", "IfNotPresent", "InvalidImageName", "invalid reference format"),
    ],
    # Image names contain a pid, and test IDs must be equal in every process.
    ids=["absent", "absent-always", "present-always", "absent-never", "invalid"],
)
async def test_why_there_is_no_image(
    place: Path, image: str, policy: str, reason: str, message: str
) -> None:
    async with a_podman_node(place) as node:
        await node.create(in_image("true", image=image, imagePullPolicy=policy))
        pod = await node.until("p", lambda p: waits_for(p) == reason)
        assert pod["status"]["phase"] == "Pending"
        assert message in the_container(pod)["state"]["waiting"]["message"]
        await node.client.write(Delete(Key(PODS, "default", "p"), grace_seconds=0))
        await node.gone("p")


@pytest.mark.parametrize("policy", ["IfNotPresent", "Never"])
async def test_an_image_that_is_there_is_not_pulled(place: Path, policy: str) -> None:
    async with a_podman_node(place) as node:
        ended = await node.run(in_image("true", imagePullPolicy=policy))
        assert ended["status"]["phase"] == "Succeeded"
