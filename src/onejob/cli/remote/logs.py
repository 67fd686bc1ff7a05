"""Logs of remote Pods: followed across lost connections without losing or repeating a line."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from datetime import datetime
from random import Random
from typing import Final
from urllib.parse import quote, urlencode

import msgspec

from onejob.cli.remote.resuming import is_passing
from onejob.cli.run.following import statuses_decoder
from onejob.client.base import WatchEvent
from onejob.client.http import HttpClient
from onejob.client.pacing import retry_delay
from onejob.objects.pod import read_pod
from onejob.wire.errors import ApiError, NotFound

#: Refusals after which the log of an ended container is considered unavailable.
_MAX_REFUSALS: Final = 5
#: Seconds to wait for the end of a container whose log has ended, before it is followed again.
_END_SECONDS: Final = 5.0
_TAIL_BYTES: Final = 64 * 1024


class _SeenPod(msgspec.Struct):
    namespace: str
    name: str
    restarts: dict[str, int] = msgspec.field(default_factory=dict)
    #: Number of ended attempts of each container.
    ended: dict[str, int] = msgspec.field(default_factory=dict)
    over: bool = False
    changed: asyncio.Event = msgspec.field(default_factory=asyncio.Event)


class LogLines:
    """Lines of a log that is requested several times, each delivered once.

    The server prefixes each line with its time. A repeated request begins at the second of the last
    complete line; lines up to that one are skipped, with those of the same time counted.
    """

    def __init__(self) -> None:
        self._last = b""
        self._same = 0
        self._to_skip = 0
        self._skipping = False
        self._begun = b""

    @property
    def since(self) -> str:
        """Value of `sinceTime` for the next request; "" for the first one."""
        text = self._last.decode()
        return f"{text[:19]}{_zone(text)}" if text else ""

    def restart(self) -> None:
        """Begin another request; an incomplete line of the previous one is discarded."""
        self._begun = b""
        self._to_skip = self._same
        self._skipping = bool(self._last)

    def feed(self, piece: bytes) -> bytes:
        """Return the new complete lines."""
        *lines, self._begun = (self._begun + piece).split(b"\n")
        return b"".join(text + b"\n" for line in lines if (text := self._new(line)) is not None)

    def finish(self) -> bytes:
        """Return the last line, if the log does not end with a newline."""
        line, self._begun = self._begun, b""
        return (self._new(line) or b"") if line else b""

    def _new(self, line: bytes) -> bytes | None:
        at, _, text = line.partition(b" ")
        if at[4:5] != b"-" or at[10:11] != b"T":
            # Not a time: a message of the server.
            return line
        if self._skipping:
            if at == self._last:
                if self._to_skip:
                    self._to_skip -= 1
                    return None
                self._skipping = False
            elif _moment(at) < _moment(self._last):
                return None
            self._skipping = False
        if at == self._last:
            self._same += 1
        else:
            self._last, self._same = at, 1
        return text


def _zone(text: str) -> str:
    rest = text[19:].lstrip(".0123456789")
    return rest or "Z"


def _moment(at: bytes) -> tuple[datetime, str]:
    text = at.decode("ascii", "replace")
    try:
        second = datetime.fromisoformat(f"{text[:19]}{_zone(text)}")
    except ValueError:
        return datetime.fromisoformat("0001-01-01T00:00:00Z"), ""
    fraction = text[19:].removesuffix(_zone(text)).lstrip(".")
    return second, fraction.ljust(9, "0")


class RemoteLogs:
    """`LogSource` on the log endpoint of an API server.

    Requirements: `observe` receives every event of the run's Pods before `follow` is called.
    """

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._pods: dict[str, _SeenPod] = {}
        self._client: HttpClient | None = None

    def use(self, client: HttpClient) -> None:
        self._client = client

    def observe(self, event: WatchEvent) -> None:
        pod = read_pod(event.document)
        seen = self._pods.get(pod.metadata.uid)
        if seen is None:
            seen = _SeenPod(pod.metadata.namespace, pod.metadata.name)
            self._pods[pod.metadata.uid] = seen
        statuses = statuses_decoder.decode(event.document).status
        for status in (*statuses.init_container_statuses, *statuses.container_statuses):
            seen.restarts[status.name] = status.restart_count
            seen.ended[status.name] = status.ended
        seen.over = seen.over or pod.terminal or event.type == "DELETED"
        seen.changed.set()
        seen.changed = asyncio.Event()

    async def follow(self, uid: str, container: str, attempt: int) -> AsyncIterator[bytes]:
        pod, lines, failures = self._pods[uid], LogLines(), 0
        while True:
            # Read before the request: what follows is complete then.
            complete = pod.over or pod.ended.get(container, 0) > attempt
            behind = pod.restarts.get(container, 0) - attempt
            if behind > 1:
                # A cluster keeps the log of one previous instance only.
                return
            lines.restart()
            target = _target(
                pod, container, previous=behind == 1, follow=not complete, since=lines.since
            )
            try:
                async with aclosing(self._streamed(target)) as pieces:
                    async for piece in pieces:
                        if text := lines.feed(piece):
                            yield text
                failures = 0
            except NotFound:
                return
            except ApiError as error:
                failures += 1
                if failures >= _MAX_REFUSALS and not is_passing(error):
                    if complete:
                        return
                    # The container may not have started yet.
                    failures = 1
                await asyncio.sleep(retry_delay(min(failures - 1, 4), self._rng))
                continue
            if complete:
                if rest := lines.finish():
                    yield rest
                return
            await self._ended(pod, container, attempt)

    def is_silent(self, uid: str, container: str, attempt: int) -> bool:
        return False

    async def tail(
        self, uid: str, container: str, attempt: int, lines: int
    ) -> AsyncIterator[bytes]:
        """Yield the last lines; none if the log no longer exists or cannot be read now."""
        pod = self._pods.get(uid)
        if pod is None or not container:
            return
        previous = pod.restarts.get(container, 0) > attempt
        target = _target(pod, container, previous=previous, tail=lines)
        try:
            async with aclosing(self._streamed(target)) as pieces:
                async for piece in pieces:
                    yield piece
        except ApiError:
            return

    async def _streamed(self, target: str) -> AsyncGenerator[bytes, None]:
        assert self._client is not None, "use() comes first"
        async with aclosing(self._client.stream(target, whole=True)) as pieces:
            async for piece in pieces:
                yield piece

    async def _ended(self, pod: _SeenPod, container: str, attempt: int) -> None:
        """Wait until the container has ended, or `_END_SECONDS`."""
        try:
            async with asyncio.timeout(_END_SECONDS):
                while not pod.over and pod.ended.get(container, 0) <= attempt:
                    await pod.changed.wait()
        except TimeoutError:
            return


def _target(
    pod: _SeenPod,
    container: str,
    *,
    previous: bool,
    follow: bool = False,
    since: str = "",
    tail: int = 0,
) -> str:
    query = {"container": container}
    if tail:
        query |= {"tailLines": str(tail), "limitBytes": str(_TAIL_BYTES)}
    else:
        query["timestamps"] = "true"
    if previous:
        query["previous"] = "true"
    elif follow:
        query["follow"] = "true"
    if since:
        query["sinceTime"] = since
    path = f"/api/v1/namespaces/{quote(pod.namespace, safe='')}/pods/{quote(pod.name, safe='')}"
    return f"{path}/log?{urlencode(query)}"
