"""Upgrade requests: open the requested session and choose its subprotocol."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, Final

import msgspec

from onejob.api.decoding.query import Query
from onejob.api.http.responses import Response
from onejob.api.http.routing import ResourcePath
from onejob.api.http.streams import Watch
from onejob.api.service import Service
from onejob.api.sessions.admitting import admitted_query
from onejob.api.sessions.channels import choose_protocol
from onejob.api.sessions.exec_sessions import PROTOCOLS, SPDY_PROTOCOL, run_session
from onejob.api.sessions.pod_streams import ExecSource, require_running, session_request
from onejob.api.sessions.port_forwarding import (
    CHANNEL_PROTOCOLS,
    TUNNEL_PROTOCOL,
    Connection,
    PortSource,
    forwarded_ports,
    run_channels,
    run_tunnel,
)
from onejob.api.sessions.socket import AbandonedSocket, Session, Socket
from onejob.wire.errors import BadRequest
from onejob.wire.requests import User

#: Subresources that require an upgrade. Logs and watches are also served without one.
SESSIONS: Final = ("exec", "attach", "portforward")

_BASE64: Final = "base64.binary.k8s.io"
_PLAIN_PROTOCOLS: Final = ("binary.k8s.io", _BASE64)


class Upgrades:
    """Factory of sessions for upgrade requests."""

    def __init__(
        self, service: Service, sessions: ExecSource | None, ports: PortSource | None
    ) -> None:
        self._service = service
        self._sessions = sessions
        self._ports = ports

    async def open(
        self, target: ResourcePath, query: Query, offered: Sequence[str], user: User
    ) -> Session:
        """Return the session for an exec, attach or portforward.

        Raises the errors with which a plain request is answered.
        """
        query = await admitted_query(self._service, target, query, user)
        document = await self._service.get(target.kind, target.namespace, target.name)
        pod: dict[str, Any] = msgspec.json.decode(document)
        if target.subresource == "portforward":
            return self._forwarding(target, pod, query, offered)
        protocol = choose_protocol(offered, (*PROTOCOLS, SPDY_PROTOCOL))
        attach = target.subresource == "attach"
        request = session_request(pod, query, target.namespace, target.name, attach=attach)
        if self._sessions is None:
            raise BadRequest("the runtime of this server has no sessions")
        sessions = self._sessions

        async def run(socket: Socket) -> None:
            await run_session(sessions, request, socket, protocol)

        return Session(protocol, run)

    def _forwarding(
        self, target: ResourcePath, pod: dict[str, Any], query: Query, offered: Sequence[str]
    ) -> Session:
        """Return the session that forwards ports. Raises BadRequest."""
        protocol = choose_protocol(offered, (TUNNEL_PROTOCOL, *CHANNEL_PROTOCOLS))
        require_running(pod, "forward ports of")
        if self._ports is None:
            raise BadRequest("the runtime of this server forwards no ports")
        connect: Callable[[int], Awaitable[Connection]] = partial(
            self._ports.connect, target.namespace, target.name
        )
        if protocol == TUNNEL_PROTOCOL:
            return Session(protocol, partial(run_tunnel, connect))
        ports = forwarded_ports(query)

        async def run(socket: Socket) -> None:
            await run_channels(connect, ports, socket, protocol)

        return Session(protocol, run)


def log_protocol(offered: Sequence[str]) -> str:
    """Return the subprotocol of a log stream. Raises BadRequest."""
    return choose_protocol(offered, _PLAIN_PROTOCOLS)


def log_stream(response: Response, protocol: str) -> Session:
    """Return a session that sends a response body in pieces, without channels."""

    async def send_all(socket: Socket) -> None:
        async with aclosing(_pieces_of(response)) as pieces:
            async for piece in pieces:
                await socket.send(b64encode(piece).decode() if protocol == _BASE64 else piece)

    return _one_way(protocol, send_all)


def watch_protocol(offered: Sequence[str]) -> str:
    """Return the single offered subprotocol or "".

    As upstream, watches define none of their own. Raises BadRequest.
    """
    if len(offered) > 1 or not "".join(offered).isascii():
        raise BadRequest("unable to upgrade: a watch accepts at most one subprotocol")
    return "".join(offered)


def watch_stream(watch: Watch, protocol: str) -> Session:
    """Return a session that sends each watch event as one frame."""

    async def send_all(socket: Socket) -> None:
        async with aclosing(watch.frames()) as frames:
            async for frame in frames:
                await socket.send_parts(frame, is_text=watch.is_text)

    return _one_way(protocol, send_all)


def _one_way(protocol: str, send_all: Callable[[Socket], Awaitable[None]]) -> Session:
    """Return a session that sends messages and ignores the client's messages."""

    async def pump(socket: Socket) -> None:
        await send_all(socket)
        await socket.close()

    async def left(socket: Socket) -> None:
        while await socket.receive() is not None:
            pass

    async def run(socket: Socket) -> None:
        tasks = (asyncio.ensure_future(pump(socket)), asyncio.ensure_future(left(socket)))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        if tasks[0].done() and not tasks[0].cancelled():
            tasks[0].result()

    # Run the generator instead of closing it: closing one that never started skips its `finally`.
    return Session(protocol, run, partial(run, AbandonedSocket()))


async def _pieces_of(response: Response) -> AsyncGenerator[bytes, None]:
    """Yield the body of a response, and close its stream at the end."""
    if isinstance(response.body, bytes):
        if response.body:
            yield response.body
        return
    try:
        async for piece in response.body:
            yield piece
    finally:
        if isinstance(response.body, AsyncGenerator):
            await response.body.aclose()
