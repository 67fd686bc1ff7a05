"""Workers that reconcile the keys of a queue; failures are retried with back-off."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, TypeVar

from onejob import tracing
from onejob.informers.workqueue import WorkQueue
from onejob.wire.errors import ApiError, Conflict, NotFound

log = logging.getLogger(__name__)

#: In a row, of what is expected to fail at times: a change that comes in between makes a key due
#: at once, so that the second may follow before the caches have what the first one lacked.
_USUAL_FAILURES: Final = 2

K = TypeVar("K", bound=Hashable)

#: Returns the seconds after which to reconcile again, or None to wait for a change.
Reconcile = Callable[[K], Awaitable[float | None]]


class Retry(Exception):
    """A reconcile could not finish for a reason that may pass; try again with back-off."""


class ReportedRetry(Retry):
    """The same, of what was logged where it happened."""


async def work(
    queue: WorkQueue[K],
    reconcile: Reconcile[K],
    *,
    workers: int,
    name: str,
    uid_of: Callable[[K], str] = str,
) -> None:
    """Run `workers` workers until cancelled. `uid_of` is asked only where somebody traces."""
    if (tracer := tracing.current()) is not None:
        reconcile = _traced(reconcile, tracer, name, uid_of)
    async with asyncio.TaskGroup() as group:
        for number in range(workers):
            group.create_task(_worker(queue, reconcile, name), name=f"{name}-{number}")


def _traced(
    reconcile: Reconcile[K], tracer: tracing.Tracer, name: str, uid_of: Callable[[K], str]
) -> Reconcile[K]:
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
    """What failed for a reason of its own is worth knowing, and so is what keeps failing. That
    somebody else was faster, or a cache is late, happens all the time, also twice in a row.
    `failures` are those before this one."""
    if isinstance(error, ReportedRetry):
        return logging.INFO
    expected = isinstance(error, Retry | Conflict | NotFound)
    return logging.WARNING if failures >= _USUAL_FAILURES or not expected else logging.INFO


async def _worker(queue: WorkQueue[K], reconcile: Reconcile[K], name: str) -> None:
    while True:
        key = await queue.get()
        try:
            look_again = await reconcile(key)
        except (Retry, ApiError) as error:
            level = _level(error, queue.failures(key))
            log.log(level, "%s: %s will be tried again: %s", name, key, error)
            queue.retry(key)
        except Exception:
            # A bug with one key must not stop the work on the others.
            log.exception("%s: %s failed unexpectedly", name, key)
            queue.retry(key)
        else:
            queue.forget(key)
            if look_again is not None:
                queue.add_after(key, look_again)
        finally:
            queue.done(key)
        if queue:
            # Thousands of keys with nothing to do must not hold the event loop.
            await asyncio.sleep(0)
