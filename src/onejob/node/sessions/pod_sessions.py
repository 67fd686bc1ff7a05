"""Exec and attach by Pod and container name: the node as the API's `ExecSource`."""

import asyncio
from collections.abc import Awaitable, Callable

from onejob.api.sessions.pod_streams import ExecRequest, ExecStreams
from onejob.client.base import Client
from onejob.node.agent.agent import NodeAgent
from onejob.node.descriptors import Sink, Source
from onejob.node.exec_session import ExecSession, Finished
from onejob.node.logs.pod_logs import running_container
from onejob.node.runtime import AttemptRef, Unsupported
from onejob.objects.meta import PODS, Key
from onejob.objects.pod_spec import Container
from onejob.wire.errors import BadRequest


class PodSessions:
    """Sessions in Pods on this node."""

    def __init__(self, node: NodeAgent, client: Client) -> None:
        self._node = node
        self._client = client

    async def exec(self, request: ExecRequest, streams: ExecStreams) -> int:
        """Run a command, or attach if there is none; return its exit code. Raises BadRequest,
        NotFound."""
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
        """Attach to a container. As on a cluster, returns 0: its exit code is in the Pod's
        status."""
        output = await self._node.attach(request.namespace, request.name, request.container)
        pod, ref = running_container(await self._document(request), request.container)
        container = pod.container(ref.container)
        assert container is not None, "a running container is one of its Pod's"
        stdin: Sink | None = None
        if request.stdin:
            stdin = await self._open_stdin(ref, container)
        elif request.tty:
            # A terminal has a size even without input.
            stdin = await self._open_terminal(ref, container)
        helping = []
        try:
            async with asyncio.TaskGroup() as group:
                if stdin is not None and request.stdin:
                    typing = _type(stdin, streams, ends=not container.tty)
                    helping.append(group.create_task(typing))
                if stdin is not None and container.tty:
                    helping.append(group.create_task(_resize(stdin.resize, streams)))
                async for piece in output:
                    if request.stdout:
                        await streams.write_stdout(piece)
                for task in helping:
                    task.cancel()
        finally:
            if stdin is not None:
                stdin.close()
        return 0

    async def _document(self, request: ExecRequest) -> bytes:
        """Return the Pod's document. Raises NotFound."""
        return await self._client.get(Key(PODS, request.namespace, request.name))

    async def _open_stdin(self, ref: AttemptRef, container: Container) -> Sink:
        """Return the stdin of a running container. Raises BadRequest if it has none."""
        place = f'container "{ref.container}"'
        if not container.stdin:
            raise BadRequest(f"{place} was started without stdin: true; attach without -i")
        try:
            stdin = await self._node.runtime.open_stdin(ref, once=container.stdin_once)
        except Unsupported as problem:
            raise BadRequest(str(problem)) from problem
        if stdin is None:
            raise BadRequest(f"the stdin of {place} is closed; attach without -i")
        return stdin

    async def _open_terminal(self, ref: AttemptRef, container: Container) -> Sink | None:
        """Return the terminal of a container; None if it has none or the runtime does not offer
        it."""
        if not container.tty:
            return None
        try:
            return await self._node.runtime.open_stdin(ref, once=False)
        except Unsupported:
            return None


async def _carry(session: ExecSession, request: ExecRequest, streams: ExecStreams) -> Finished:
    """Transfer data until the command has ended and all its output is delivered."""
    async with asyncio.TaskGroup() as group:
        helping = []
        if session.stdin is not None:
            helping.append(group.create_task(_type(session.stdin, streams)))
        if request.tty:
            helping.append(group.create_task(_resize(session.resize, streams)))
        outputs = [
            group.create_task(_show(session.stdout, streams.write_stdout, wanted=request.stdout))
        ]
        if session.stderr is not None:
            showing = _show(session.stderr, streams.write_stderr, wanted=request.stderr)
            outputs.append(group.create_task(showing))
        finished = await session.finished()
        await asyncio.wait(outputs)
        for task in helping:
            task.cancel()
    return finished


async def _type(stdin: Sink, streams: ExecStreams, *, ends: bool = True) -> None:
    """Copy the client's input to stdin, and close it at the end if `ends`."""
    while data := await streams.read_stdin():
        await stdin.write(data)
    if ends:
        stdin.close()


async def _resize(resize: Callable[[int, int], None], streams: ExecStreams) -> None:
    """Apply all changes of the client's terminal size, until cancelled."""
    while True:
        size = await streams.next_size()
        resize(size.width, size.height)


async def _show(output: Source, write: Callable[[bytes], Awaitable[None]], *, wanted: bool) -> None:
    """Copy output; discard it unless `wanted`, since a command with unread output blocks for
    ever."""
    while data := await output.read():
        if wanted:
            await write(data)
        # A command that writes without pause must not block the event loop.
        await asyncio.sleep(0)
