"""exec and attach by Pod and container name: the node as the API's `ExecSource`."""

import asyncio
from collections.abc import Awaitable, Callable

from onejob.api.errors import BadRequest
from onejob.api.pod_streams import ExecRequest, ExecStreams
from onejob.node.agent import NodeAgent
from onejob.node.descriptors import Source
from onejob.node.exec_session import ExecSession, Finished


class PodSessions:
    def __init__(self, node: NodeAgent) -> None:
        self._node = node

    async def exec(self, request: ExecRequest, streams: ExecStreams) -> int:
        if not request.command:
            return await self._attach(request, streams)
        session = await self._node.open_session(
            request.namespace,
            request.name,
            request.container,
            request.command,
            stdin=request.stdin,
            tty=request.tty,
        )
        try:
            finished = await _carry(session, request, streams)
        finally:
            await session.close()
        if finished.code < 0:
            raise BadRequest(
                f'cannot run the command in container "{request.container}": {finished.message}'
            )
        return finished.code

    async def _attach(self, request: ExecRequest, streams: ExecStreams) -> int:
        """Like on a cluster, how the container ended is for its status to say."""
        if request.stdin:
            raise BadRequest(
                f'container "{request.container}" has no stdin to attach to: attach without -i, '
                "or use exec"
            )
        output = await self._node.attach(request.namespace, request.name, request.container)
        async for piece in output:
            if request.stdout:
                await streams.write_stdout(piece)
        return 0


async def _carry(session: ExecSession, request: ExecRequest, streams: ExecStreams) -> Finished:
    """Move bytes until the command has ended and all it wrote is delivered."""
    async with asyncio.TaskGroup() as group:
        typing = group.create_task(_type(session, streams)) if request.stdin else None
        resizing = group.create_task(_resize(session, streams)) if request.tty else None
        outputs = [
            group.create_task(_show(session.stdout, streams.write_stdout, wanted=request.stdout))
        ]
        if session.stderr is not None:
            showing = _show(session.stderr, streams.write_stderr, wanted=request.stderr)
            outputs.append(group.create_task(showing))
        finished = await session.finished()
        await asyncio.wait(outputs)
        for task in (typing, resizing):
            if task is not None:
                task.cancel()
    return finished


async def _type(session: ExecSession, streams: ExecStreams) -> None:
    while data := await streams.read_stdin():
        await session.write(data)
    session.end_input()


async def _resize(session: ExecSession, streams: ExecStreams) -> None:
    while True:
        size = await streams.next_size()
        session.resize(size.width, size.height)


async def _show(output: Source, write: Callable[[bytes], Awaitable[None]], *, wanted: bool) -> None:
    """Also what nobody wants to see must be read, or the command waits for ever."""
    while data := await output.read():
        if wanted:
            await write(data)
        # A command that never pauses must not keep the server from anything else.
        await asyncio.sleep(0)
