"""Deduplicating work queue with delays and per-key back-off, after client-go, and its workers.

Each key is queued at most once and processed by one worker at a time. A key added while it is being
processed is processed once more afterwards, however often it was added: work is coalesced exactly
while the worker is busy, and starts at once when it is idle. The queue does not record why a key is
due.

Workers reconcile the keys of a queue and retry failures with back-off.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, Generic, TypeVar

from onejob import tracing
from onejob.wire.errors import ApiError, Conflict, NotFound

log = logging.getLogger(__name__)

#: Expected failures in a row that are logged at INFO only. Two, because a change in between makes a
#: key due at once, so that the second attempt may start before the caches contain the object that
#: the first one lacked.
_USUAL_FAILURES: Final = 2

K = TypeVar("K", bound=Hashable)


class WorkQueue(Generic[K]):
    """Work queue of keys for one or more workers.

    Guarantees: a key is queued once and processed by one worker at a time; due keys are returned in
    FIFO order. A key added during its processing is processed again. A cancelled `get` loses no
    key.

    Requirements: call `done` after each `get`, and `retry` or `forget` for failure or success.

    Concurrency: used from the tasks of one event loop; not thread-safe.
    """

    def __init__(self, *, first_delay: float = 1.0, longest_delay: float = 60.0) -> None:
        """Create an empty queue.

        `retry` waits `first_delay` seconds, doubled at each failure of a key, up to
        `longest_delay`.
        """
        self._first_delay = first_delay
        self._longest_delay = longest_delay
        self._ready: deque[K] = deque()
        self._waiting: set[K] = set()
        self._working: set[K] = set()
        #: Due time (loop time) and timer of each delayed key. The time is stored separately because
        #: the handle that uvloop returns for a timer that is due at once has no `when`.
        self._timers: dict[K, tuple[float, asyncio.Handle]] = {}
        self._failures: dict[K, int] = {}
        self._getters: deque[asyncio.Future[None]] = deque()
        #: Counters since the queue was created, for metrics.
        self.adds = 0
        self.retries = 0

    def __len__(self) -> int:
        return len(self._ready)

    @property
    def idle(self) -> bool:
        """Return whether no key is due and none is being processed. Delayed keys do not count."""
        return not self._waiting and not self._working

    def add(self, key: K) -> None:
        """Queue the key for immediate processing, unless it is queued already."""
        if key in self._waiting:
            return
        self._waiting.add(key)
        self.adds += 1
        if key not in self._working:
            self._ready.append(key)
            self._wake_one()

    def add_after(self, key: K, seconds: float) -> None:
        """Queue the key in `seconds`, unless it is already due earlier."""
        if seconds <= 0:
            self.add(key)
            return
        loop = asyncio.get_running_loop()
        due = loop.time() + seconds
        timer = self._timers.get(key)
        if timer is not None:
            if timer[0] <= due:
                return
            timer[1].cancel()
        self._timers[key] = due, loop.call_at(due, self._on_timer, key)

    def make_delayed_due(self) -> None:
        """Queue all delayed keys now: after a jump of the clock their delays may be wrong."""
        timers, self._timers = self._timers, {}
        for key, (_, timer) in timers.items():
            timer.cancel()
            self.add(key)

    def retry(self, key: K) -> None:
        """Queue the key again after its back-off."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        self.retries += 1
        self.add_after(key, min(self._first_delay * 2**failures, self._longest_delay))

    def failures(self, key: K) -> int:
        """Return the number of failures of the key in a row."""
        return self._failures.get(key, 0)

    def forget(self, key: K) -> None:
        """Reset the key's back-off after a success."""
        self._failures.pop(key, None)

    def drop(self, key: K) -> None:
        """Cancel the delay and reset the back-off of a key whose object no longer exists."""
        self.forget(key)
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer[1].cancel()

    async def get(self) -> K:
        """Wait for the next due key and return it.

        The caller must call `done` with it afterwards.
        """
        while not self._ready:
            getter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._getters.append(getter)
            try:
                await getter
            except asyncio.CancelledError:
                # The wake-up may have been meant for this getter: pass it on rather than lose it.
                if getter.done() and not getter.cancelled() and self._ready:
                    self._wake_one()
                raise
        key = self._ready.popleft()
        self._waiting.discard(key)
        self._working.add(key)
        return key

    def done(self, key: K) -> None:
        """Mark a key as processed; requeue it if it was added in the meantime."""
        self._working.discard(key)
        if key in self._waiting:
            self._ready.append(key)
            self._wake_one()

    def close(self) -> None:
        for _, timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _on_timer(self, key: K) -> None:
        del self._timers[key]
        self.add(key)

    def _wake_one(self) -> None:
        while self._getters:
            getter = self._getters.popleft()
            if not getter.done():
                getter.set_result(None)
                return


#: Returns the seconds after which to reconcile again, or None to wait for a change.
Reconcile = Callable[[K], Awaitable[float | None]]


class Retry(Exception):
    """A reconcile could not finish for a reason that may pass; try again with back-off."""


class ReportedRetry(Retry):
    """A `Retry` whose cause has been logged where it occurred; never logged as a warning."""


async def work(
    queue: WorkQueue[K],
    reconcile: Reconcile[K],
    *,
    workers: int,
    name: str,
    uid_of: Callable[[K], str] = str,
) -> None:
    """Run `workers` workers until cancelled.

    `reconcile` may raise anything: `Retry` and `ApiError` are logged and retried with the queue's
    back-off, and so are bugs, with a traceback. `uid_of` returns the UID that a span belongs to; it
    is called only if tracing is on.
    """
    if (tracer := tracing.current()) is not None:
        reconcile = _with_tracing(reconcile, tracer, name, uid_of)
    async with asyncio.TaskGroup() as group:
        for number in range(workers):
            group.create_task(_worker(queue, reconcile, name), name=f"{name}-{number}")


def _with_tracing(
    reconcile: Reconcile[K], tracer: tracing.Tracer, name: str, uid_of: Callable[[K], str]
) -> Reconcile[K]:
    """Return a reconcile function that records a span for each call."""

    async def traced(key: K) -> float | None:
        span = tracer.part_of(uid_of(key))
        failure = ""
        try:
            return await reconcile(key)
        except Exception as error:
            failure = f"{type(error).__name__}: {error}"
            raise
        finally:
            span.end(f"sync {name}", {"onejob.key": str(key)}, failure=failure)

    return traced


def _level(error: Exception, failures: int) -> int:
    """Return the log level of a failed reconcile after `failures` earlier ones in a row.

    Unexpected errors and repeated failures are warnings. Conflicts with other writers and late
    caches are routine, also twice in a row, and are logged at INFO.
    """
    if isinstance(error, ReportedRetry):
        return logging.INFO
    expected = isinstance(error, Retry | Conflict | NotFound)
    return logging.WARNING if failures >= _USUAL_FAILURES or not expected else logging.INFO


async def _worker(queue: WorkQueue[K], reconcile: Reconcile[K], name: str) -> None:
    """Reconcile keys of the queue until cancelled; failed ones are queued again with back-off."""
    while True:
        key = await queue.get()
        try:
            look_again = await reconcile(key)
        except (Retry, ApiError) as error:
            level = _level(error, queue.failures(key))
            log.log(level, "%s: retrying %s: %s", name, key, error)
            queue.retry(key)
        except Exception:
            # A bug with one key must not stop the work on the others.
            log.exception("%s: sync of %s failed unexpectedly", name, key)
            queue.retry(key)
        else:
            queue.forget(key)
            if look_again is not None:
                queue.add_after(key, look_again)
        finally:
            queue.done(key)
        if queue:
            # Thousands of keys with nothing to do must not block the event loop.
            await asyncio.sleep(0)
