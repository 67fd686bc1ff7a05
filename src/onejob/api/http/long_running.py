"""Revocation of open watches, followed logs and sessions.

A plain request is authenticated and authorized once, on arrival. A stream may stay open for days,
so both checks are repeated: a revoked token, an expired certificate or a deleted RoleBinding ends
it within `RECHECK_SECONDS`.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeAlias

from onejob.wire.errors import ApiError

RECHECK_SECONDS: Final = 5.0
#: Streams checked per event loop iteration.
_PER_TURN: Final = 32

#: Check that raises ApiError if the request would be rejected now.
Recheck: TypeAlias = Callable[[], object]


class LongRunningRequests:
    def __init__(self) -> None:
        self._open: dict[asyncio.Future[None], Recheck] = {}
        self._timer: asyncio.Handle | None = None

    @contextmanager
    def recheck(self, check: Recheck) -> Iterator["asyncio.Future[None]"]:
        """Run `check` regularly. Yields a future that is done once the check has failed."""
        loop = asyncio.get_running_loop()
        revoked = loop.create_future()
        self._open[revoked] = check
        if self._timer is None:
            self._timer = loop.call_later(RECHECK_SECONDS, self._begin_round)
        try:
            yield revoked
        finally:
            del self._open[revoked]
            if not self._open and self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def _begin_round(self) -> None:
        self._go_on(deque(self._open))

    def _go_on(self, unchecked: "deque[asyncio.Future[None]]") -> None:
        for _ in range(min(_PER_TURN, len(unchecked))):
            revoked = unchecked.popleft()
            check = self._open.get(revoked)
            if check is None or revoked.done():
                continue
            try:
                check()
            except ApiError:
                revoked.set_result(None)
        loop = asyncio.get_running_loop()
        if unchecked:
            self._timer = loop.call_soon(self._go_on, unchecked)
        else:
            self._timer = loop.call_later(RECHECK_SECONDS, self._begin_round)
