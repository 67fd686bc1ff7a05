"""Image pulls: triggers, sharing between Pods, and backoff after a failure."""

import asyncio

import pytest

from onejob.node.podman.engine import EngineResult
from onejob.node.podman.images import ImageFacts, ImageProblem, Images, back_off_seconds
from onejob.virtual_time import virtual_clock

pytestmark = pytest.mark.virtual_time

OK = EngineResult(0, b'[{"Config":{"User":"app","StopSignal":"SIGINT"}}]', "")
REFUSED = EngineResult(125, b"", "Trying to pull x...\nError: no such host\n")
ABSENT = EngineResult(125, b"", "Error: x: image not known")


class Registry:
    """Images of an engine, and a registry that has or lacks the missing ones."""

    def __init__(self, *present: str, reachable: bool = True) -> None:
        self.present = set(present)
        self.reachable = reachable
        self.pulls = 0

    async def image(self, name: str) -> EngineResult:
        return OK if name in self.present else ABSENT

    async def pull(self, name: str) -> EngineResult:
        self.pulls += 1
        await asyncio.sleep(1)
        if self.reachable:
            self.present.add(name)
        return EngineResult(0, b"id\n", "") if self.reachable else REFUSED


def images_of(registry: Registry) -> Images:
    return Images(registry, virtual_clock())


@pytest.mark.parametrize(
    ("image", "policy", "present", "pulls"),
    [
        ("x:1", "IfNotPresent", True, 0),
        ("x:1", "IfNotPresent", False, 1),
        ("x:1", "Never", True, 0),
        ("x:1", "Always", True, 1),
        ("x:1", "", True, 0),
        ("x", "", True, 1),
        ("x:latest", "", True, 1),
        ("host:5000/x", "", True, 1),
        ("host:5000/x:1", "", True, 0),
        ("x@sha256:0", "", True, 0),
    ],
)
async def test_image_is_pulled_according_to_policy(
    image: str, policy: str, present: bool, pulls: int
) -> None:
    registry = Registry(*([image] if present else []))
    facts = await images_of(registry).provide("u", image, policy)
    assert facts == ImageFacts("app", "SIGINT")
    assert registry.pulls == pulls


async def test_concurrent_pulls_of_an_image_are_shared() -> None:
    registry = Registry()
    images = images_of(registry)
    await asyncio.gather(*(images.provide(f"u{n}", "x:1", "Always") for n in range(20)))
    assert registry.pulls == 1


async def test_cancelled_pull_continues_for_other_waiters() -> None:
    registry = Registry()
    images = images_of(registry)
    one = asyncio.create_task(images.provide("u1", "x:1", ""))
    other = asyncio.create_task(images.provide("u2", "x:1", ""))
    await asyncio.sleep(0.5)
    one.cancel()
    await other
    assert registry.pulls == 1


async def test_after_a_failure_the_pod_backs_off_and_then_tries_again() -> None:
    registry = Registry(reachable=False)
    images = images_of(registry)

    async def reason() -> str:
        with pytest.raises(ImageProblem) as caught:
            await images.provide("u", "x:1", "")
        return f"{caught.value.reason}: {caught.value.message}"

    assert await reason() == "ErrImagePull: no such host"
    assert await reason() == 'ImagePullBackOff: Back-off pulling image "x:1"'
    await asyncio.sleep(10)
    assert await reason() == "ErrImagePull: no such host"
    await asyncio.sleep(10)
    assert (await reason()).startswith("ImagePullBackOff")
    registry.reachable = True
    await asyncio.sleep(10)
    await images.provide("u", "x:1", "")
    assert registry.pulls == 3


def test_the_back_off_doubles_up_to_five_minutes() -> None:
    assert [back_off_seconds(n) for n in (1, 2, 3, 6, 100)] == [10, 20, 40, 300, 300]


async def test_an_image_the_engine_no_longer_has_is_looked_for_again() -> None:
    registry = Registry("x:1")
    images = images_of(registry)
    await images.provide("u", "x:1", "")
    registry.present.clear()
    images.forget_image("x:1")
    await images.provide("u", "x:1", "")
    assert registry.pulls == 1


@pytest.mark.parametrize(
    "image", ["-v/:/host", "--privileged", "-", "a b", "a\nb", "a\x1b[2J", "", "@x", "é"]
)
async def test_invalid_image_name_never_reaches_engine(image: str) -> None:
    class Watchful(Registry):
        async def image(self, name: str) -> EngineResult:
            raise AssertionError(f"the engine was asked for {name!r}")

        pull = image

    for policy in ("Always", "IfNotPresent", "Never"):
        with pytest.raises(ImageProblem) as caught:
            await images_of(Watchful()).provide("uid", image, policy)
        assert caught.value.reason == "InvalidImageName"
        assert "invalid reference format" in caught.value.message


@pytest.mark.parametrize(
    "image",
    ["busybox", "busybox:1.36", "localhost:5000/a/b_c.d-e:tag", "[::1]:5000/x", "0123abc",
     "registry.example/a@sha256:0123456789abcdef", "docker.io/library/alpine"],
)  # fmt: skip
async def test_names_of_images_are_passed_on(image: str) -> None:
    await images_of(Registry(image)).provide("uid", image, "IfNotPresent")
