"""Lazy construction of the dashboard.

Pages and their imports (explanations, summaries, merged logs) are loaded at its first request.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol

from onejob.api.access.authentication import Credentials
from onejob.api.http.dashboard import Dashboard
from onejob.api.http.requests import UserRequest
from onejob.api.http.responses import Response
from onejob.dashboard.sessions import SESSION_HEADER, SESSION_PROTOCOL

_PROTOCOLS: Final = b"sec-websocket-protocol"


class _Pages(Dashboard, Protocol):
    async def stop(self) -> None:
        """End what continues in the background."""


class DashboardOnDemand:
    """Implementation of `onejob.api.http.dashboard.Dashboard`."""

    def __init__(self, build: Callable[[], _Pages], ready: Callable[[], Awaitable[None]]) -> None:
        """`ready` waits until the caches contain all Pods."""
        self._build = build
        self._ready = ready
        self._built: _Pages | None = None

    def session(self, headers: Mapping[bytes, bytes]) -> Credentials | None:
        # Called for every request of every client.
        if SESSION_HEADER in headers or SESSION_PROTOCOL in headers.get(_PROTOCOLS, b""):
            return self._pages().session(headers)
        return None

    async def answer(
        self, request: UserRequest, path: tuple[str, ...], credentials: Credentials
    ) -> Response:
        """Wait until the dashboard can be used, and answer the request."""
        await self._ready()
        return await self._pages().answer(request, path, credentials)

    async def stop(self) -> None:
        """End what continues in the background."""
        if self._built is not None:
            await self._built.stop()

    def _pages(self) -> _Pages:
        """Return the dashboard, built on first use."""
        if self._built is None:
            self._built = self._build()
        return self._built
