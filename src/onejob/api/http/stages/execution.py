"""Execution stage: call the handler of an operation."""

from collections.abc import Sequence

from onejob.api.access.authentication import Credentials
from onejob.api.http.dashboard import Dashboard
from onejob.api.http.endpoints import Endpoints
from onejob.api.http.operations import Operation
from onejob.api.http.requests import UserRequest
from onejob.api.http.responses import Response
from onejob.api.http.routing import GroupPath, PageNotFound, ResourcePath
from onejob.api.http.server_pages import DiscoveryPages, ServerPages
from onejob.api.sessions.upgrades import (
    Upgrades,
    log_protocol,
    log_stream,
    watch_protocol,
    watch_stream,
)


class Execution:
    """Requirements: the user is authorized for the operation."""

    def __init__(
        self,
        endpoints: Endpoints,
        upgrades: Upgrades,
        discovery: DiscoveryPages,
        pages: ServerPages,
        dashboard: Dashboard | None,
    ) -> None:
        self._endpoints = endpoints
        self._upgrades = upgrades
        self._discovery = discovery
        self._pages = pages
        self._dashboard = dashboard

    async def execute(
        self, request: UserRequest, operation: Operation, credentials: Credentials
    ) -> Response:
        """Return the response of the handler. Raises PageNotFound, ApiError or ClientGone."""
        path = operation.path
        if isinstance(path, ResourcePath):
            return await self._endpoints.answer(request, path, operation.verb)
        if isinstance(path, GroupPath):
            return self._discovery.answer(path, request, request.header(b"host"))
        if path.page != "ui":
            return await self._pages.answer(path, request)
        if self._dashboard is None:
            raise PageNotFound(path.page)
        return await self._dashboard.answer(request, path.rest, credentials)

    async def open_session(
        self, request: UserRequest, operation: Operation, offered: Sequence[str]
    ) -> Response:
        """Return a response with the session that an upgrade requests. Raises ApiError.

        `offered` are the client's subprotocols.
        """
        path = operation.path
        assert isinstance(path, ResourcePath), "only resources have sessions"
        if operation.verb == "watch":
            protocol = watch_protocol(offered)
            session = watch_stream(await self._endpoints.open_watch(request, path), protocol)
        elif path.subresource == "log":
            protocol = log_protocol(offered)
            session = log_stream(await self._endpoints.answer(request, path, "get"), protocol)
        elif path.subresource == "proxy":
            from onejob.api.sessions.proxy.web_sockets import open_web_socket

            session = await open_web_socket(self._endpoints.proxy, request, path, offered)
        else:
            session = await self._upgrades.open(path, request.query, offered, request.user)
        return Response(101, b"", endless=True, session=session)
