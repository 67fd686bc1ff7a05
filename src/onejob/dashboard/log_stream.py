"""Multiplexed log stream: the logs of several Pods in one response.

Browsers open only six connections to a server, so logs share one. The response consists of frames:
`NUMBER LENGTH\n`, then so many bytes of the log with that number. A log that cannot be read is
skipped, so that the others are still sent: a Pod may have none yet.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

from onejob.api.sessions.pod_streams import LogSource
from onejob.wire.errors import ApiError
from onejob.wire.requests import LogOptions

#: Queued frames. A slow reader delays its logs rather than growing the memory.
_MAX_QUEUED_REQUESTS = 16


async def merged_logs(
    source: LogSource, namespace: str, wanted: Sequence[tuple[str, str]], options: LogOptions
) -> AsyncIterator[bytes]:
    """Yield frames of the logs of `wanted`, pairs of Pod and container."""
    frames: asyncio.Queue[bytes | None] = asyncio.Queue(_MAX_QUEUED_REQUESTS)

    async def read(number: int, pod: str, container: str) -> None:
        with suppress(ApiError):
            async for piece in await source.logs(namespace, pod, container, options):
                if piece:
                    await frames.put(b"%d %d\n" % (number, len(piece)) + piece)
        await frames.put(None)

    tasks = [
        asyncio.create_task(read(number, pod, container))
        for number, (pod, container) in enumerate(wanted)
    ]
    try:
        open_logs = len(tasks)
        while open_logs:
            frame = await frames.get()
            if frame is None:
                open_logs -= 1
            else:
                yield frame
    finally:
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, Exception):
                raise result
