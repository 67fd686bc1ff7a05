"""Lazy construction of the dashboard.

Pages and their imports (explanations, summaries, merged logs) are loaded at its first request.
"""

from collections.abc import Awaitable, Callable, Mapping

from onejob.api.access.authentication import Credentials
from onejob.api.http.dashboard import Dashboard
from onejob.api.http.requests import UserRequest
from onejob.api.http.responses import Response
from onejob.dashboard.sessions import SESSION_HEADER


class DashboardOnDemand:
    """Implementation of `onejob.api.http.dashboard.Dashboard`."""

    def __init__(
        self, build: Callable[[], Dashboard], ready: Callable[[], Awaitable[None]]
    ) -> None:
        """`ready` waits until the caches contain all Pods."""
        self._build = build
        self._ready = ready
        self._built: Dashboard | None = None

    def session(self, headers: Mapping[bytes, bytes]) -> Credentials | None:
        # Called for every request of every client.
        return self._pages().session(headers) if SESSION_HEADER in headers else None

    async def answer(
        self, request: UserRequest, path: tuple[str, ...], credentials: Credentials
    ) -> Response:
        """Wait until the dashboard can be used, and answer the request."""
        await self._ready()
        return await self._pages().answer(request, path, credentials)

    def _pages(self) -> Dashboard:
        """Return the dashboard, built on first use."""
        if self._built is None:
            self._built = self._build()
        return self._built
