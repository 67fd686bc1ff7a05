"""Detection of container exits: by the engine's events, and by periodic inspection."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

from onejob.clock import Clock
from onejob.node.podman.attempts import Attempts
from onejob.node.podman.command import container_name
from onejob.node.podman.engine import Engine
from onejob.node.podman.records import Found
from onejob.node.runtime import AttemptRef, RuntimeUnavailable

log = logging.getLogger(__name__)

#: Seconds between inspections of all containers, in case an event was missed.
_CHECK_SECONDS = 60.0
_RETRY_SECONDS = 1.0
#: Seconds within which an engine records an exit that it announced.
_SETTLE_SECONDS = 0.2


class EndWatch:
    """Watcher of running attempts.

    Calls `judge` with the engine's record of an attempt that is running as far as is known; None if
    the engine has no such container.
    """

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        attempts: Attempts,
        judge: Callable[[AttemptRef, Found | None], Awaitable[None]],
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._attempts = attempts
        self._judge = judge
        self._to_examine: set[AttemptRef] = set()
        self._examine_now = asyncio.Event()

    def look_at(self, *refs: AttemptRef) -> None:
        """Inspect these attempts soon."""
        self._to_examine.update(refs)
        self._examine_now.set()

    def inspect_later(self, ref: AttemptRef) -> None:
        """Inspect an attempt again later: its exit was announced, but is not in the engine's
        records yet."""
        asyncio.get_running_loop().call_later(_SETTLE_SECONDS, self.look_at, ref)

    async def follow_events(self, since: datetime) -> None:
        """Process the deaths that the engine reports, until cancelled."""
        while True:
            async with contextlib.aclosing(self._engine.deaths(since)) as deaths:
                async for name in deaths:
                    self._on_death(name)
            log.warning("the event stream of the engine ended; restarting it")
            await asyncio.sleep(_RETRY_SECONDS)
            since = self._clock.now() - timedelta(seconds=2 * _RETRY_SECONDS)
            self.look_at(*self._attempts.refs)

    def _on_death(self, name: str) -> None:
        attempt = self._attempts.by_name(name)
        if attempt is not None:
            attempt.announced = True
            self.look_at(attempt.ref)

    async def examine(self) -> None:
        """Inspect attempts that may have ended, many per call, until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CHECK_SECONDS):
                    await self._examine_now.wait()
            refs = self._to_examine if self._examine_now.is_set() else set(self._attempts.refs)
            self._to_examine = set()
            self._examine_now.clear()
            running = [ref for ref in refs if self._attempts.running(ref) is not None]
            if not running:
                continue
            try:
                containers = await self._engine.inspect([container_name(ref) for ref in running])
            except RuntimeUnavailable as problem:
                log.warning("%s", problem)
                await asyncio.sleep(_RETRY_SECONDS)
                self.look_at(*running)
                continue
            found = {container.ref: container for container in containers}
            for ref in running:
                await self._judge(ref, found.get(ref))
