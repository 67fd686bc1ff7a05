"""Early end of open watches, followed logs and sessions: revoked access, or a shutdown.

A plain request is authenticated and authorized once, on arrival. A stream may stay open for days,
so both checks are repeated: a revoked token, an expired certificate or a deleted RoleBinding ends
it within `RECHECK_SECONDS`.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

from onejob.api.http.routing import PageNotFound
from onejob.wire.errors import ApiError

RECHECK_SECONDS: Final = 5.0
#: Streams checked per event loop iteration.
_PER_TURN: Final = 32

#: Check that raises ApiError or PageNotFound if the request would be rejected now.
Recheck: TypeAlias = Callable[[], object]


class LongRunningRequests:
    """Requests whose responses are open. Each `open` must be paired with one `close`."""

    def __init__(self) -> None:
        self._open: dict[asyncio.Future[None], Recheck] = {}
        self._timer: asyncio.Handle | None = None
        self._shutdown: asyncio.Future[None] | None = None
        self._is_shut_down = False

    def open(self, check: Recheck) -> "asyncio.Future[None]":
        """Run `check` regularly. Return a future that is done once the check has failed."""
        loop = asyncio.get_running_loop()
        revoked = loop.create_future()
        self._open[revoked] = check
        if self._timer is None:
            self._timer = loop.call_later(RECHECK_SECONDS, self._begin_round)
        return revoked

    def close(self, revoked: "asyncio.Future[None]") -> None:
        """Forget a request that has ended, given its future."""
        del self._open[revoked]
        if not self._open and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def shut_down(self) -> None:
        """End all streams, including streams that start later."""
        self._is_shut_down = True
        if self._shutdown is not None and not self._shutdown.done():
            self._shutdown.set_result(None)

    @property
    def shutdown(self) -> "asyncio.Future[None]":
        """Future that is done once the server stops."""
        if self._shutdown is None:
            self._shutdown = asyncio.get_running_loop().create_future()
            if self._is_shut_down:
                self._shutdown.set_result(None)
        return self._shutdown

    def _begin_round(self) -> None:
        self._check_batch(deque(self._open))

    def _check_batch(self, unchecked: "deque[asyncio.Future[None]]") -> None:
        for _ in range(min(_PER_TURN, len(unchecked))):
            revoked = unchecked.popleft()
            check = self._open.get(revoked)
            if check is None or revoked.done():
                continue
            try:
                check()
            except (ApiError, PageNotFound):
                revoked.set_result(None)
        loop = asyncio.get_running_loop()
        if unchecked:
            self._timer = loop.call_soon(self._check_batch, unchecked)
        else:
            self._timer = loop.call_later(RECHECK_SECONDS, self._begin_round)
