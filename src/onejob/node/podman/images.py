"""Image pulls: pull policies, one shared pull per image, and back-off after failures."""

import asyncio
import re
from dataclasses import dataclass
from typing import Protocol

import msgspec

from onejob.clock import Clock
from onejob.node.podman.engine import EngineResult

#: The kubelet's back-off in seconds, per Pod and image.
FIRST_BACK_OFF_SECONDS = 10.0
MAX_BACK_OFF_SECONDS = 300.0


#: Characters of `host:port/path:tag@digest`; the engine validates the rest.
_REFERENCE = re.compile(r"[A-Za-z0-9\[][A-Za-z0-9._:/@\[\]+-]*", re.ASCII)


class ImageProblem(Exception):
    """The image is unavailable; `reason` is the waiting reason in the container's status."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason, self.message = reason, message


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """Properties of an image that its containers depend on."""

    #: USER of the image: a name or number, optionally with a group.
    user: str = ""
    stop_signal: str = ""


class ImageSource(Protocol):
    """The engine's image operations."""

    async def image(self, name: str) -> EngineResult:
        """Return the record of a local image."""

    async def pull(self, name: str) -> EngineResult:
        """Pull an image."""


class Images:
    """Provider of local images, with pulls in progress and their failures."""

    def __init__(self, source: ImageSource, clock: Clock) -> None:
        self._source = source
        self._clock = clock
        #: Images found present when last inspected.
        self._present: dict[str, ImageFacts] = {}
        self._pulls: dict[str, asyncio.Task[EngineResult]] = {}
        self._failures: dict[tuple[str, str], _Failures] = {}

    async def provide(self, uid: str, image: str, policy: str) -> ImageFacts:
        """Return the image's facts, after pulling it if the policy requires that. Raises
        ImageProblem."""
        if not _REFERENCE.fullmatch(image):
            # Not left to the engine, which takes some invalid names for options.
            raise ImageProblem(
                "InvalidImageName",
                f'Failed to apply default image tag "{image}": couldn\'t parse image name '
                f'"{image}": invalid reference format',
            )
        policy = policy or _default_policy(image)
        facts = None if policy == "Always" else await self._inspect(image)
        if facts is not None:
            return facts
        if policy == "Never":
            raise ImageProblem(
                "ErrImageNeverPull",
                f'Container image "{image}" is not present with pull policy of Never',
            )
        await self._pull(uid, image)
        facts = await self._inspect(image)
        if facts is None:
            raise ImageProblem("ErrImagePull", f'image "{image}" was pulled but does not exist')
        return facts

    def forget_image(self, image: str) -> None:
        """Drop a cached image that the engine no longer has."""
        self._present.pop(image, None)

    def forget_pod(self, uid: str) -> None:
        """Drop the failed pulls of a deleted Pod."""
        for key in [key for key in self._failures if key[0] == uid]:
            del self._failures[key]

    async def close(self) -> None:
        """Cancel all pulls."""
        for pull in self._pulls.values():
            pull.cancel()
        await asyncio.gather(*self._pulls.values(), return_exceptions=True)

    async def _inspect(self, image: str) -> ImageFacts | None:
        """Return the facts of an image that is present, else None."""
        known = self._present.get(image)
        if known is not None:
            return known
        answer = await self._source.image(image)
        if answer.code:
            if "invalid reference format" in answer.complaint:
                raise ImageProblem(
                    "InvalidImageName",
                    f'Failed to apply default image tag "{image}": {answer.problem}',
                )
            return None
        facts = _read_facts(answer.output)
        self._present[image] = facts
        return facts

    async def _pull(self, uid: str, image: str) -> None:
        """Pull an image or join its pull in progress. Raises ImageProblem, also while backing
        off."""
        failures = self._failures.get((uid, image))
        if failures is not None and self._clock.monotonic() < failures.until:
            raise ImageProblem("ImagePullBackOff", f'Back-off pulling image "{image}"')
        pull = self._pulls.get(image)
        if pull is None:
            pull = asyncio.create_task(self._source.pull(image))
            self._pulls[image] = pull
            pull.add_done_callback(lambda _: self._pulls.pop(image, None))
        # Other containers may wait for the same pull: cancelling one waiter leaves it running.
        answer = await asyncio.shield(pull)
        if answer.code:
            count = failures.count + 1 if failures is not None else 1
            until = self._clock.monotonic() + back_off_seconds(count)
            self._failures[uid, image] = _Failures(count, until)
            raise ImageProblem("ErrImagePull", answer.problem)
        self._failures.pop((uid, image), None)
        self._present.pop(image, None)


def back_off_seconds(failures: int) -> float:
    return min(FIRST_BACK_OFF_SECONDS * 2.0 ** min(failures - 1, 16), MAX_BACK_OFF_SECONDS)


@dataclass(frozen=True, slots=True)
class _Failures:
    """Failed pulls of an image for one Pod."""

    count: int
    until: float


def _default_policy(image: str) -> str:
    """Return the default policy, for Pods without an API server's defaulting."""
    name, at, _ = image.partition("@")
    _, colon, tag = name.rpartition(":")
    tagged = bool(colon) and "/" not in tag
    return "IfNotPresent" if at or (tagged and tag != "latest") else "Always"


class _Config(msgspec.Struct, rename="pascal"):
    user: str = ""
    stop_signal: str = ""


class _Image(msgspec.Struct, rename="pascal"):
    config: _Config | None = None


def _read_facts(document: bytes) -> ImageFacts:
    (image,) = msgspec.json.decode(document, type=list[_Image])
    config = image.config or _Config()
    return ImageFacts(config.user, config.stop_signal)
