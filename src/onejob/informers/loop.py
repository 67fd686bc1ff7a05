"""Reconcile workers: reconcile the keys of a work queue, retry failures with back-off."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, TypeVar

from onejob import tracing
from onejob.informers.workqueue import WorkQueue
from onejob.wire.errors import ApiError, Conflict, NotFound

log = logging.getLogger(__name__)

#: Expected failures in a row that are logged at INFO only. Two, because a change in between makes a
#: key due at once, so that the second attempt may start before the caches contain the object that
#: the first one lacked.
_USUAL_FAILURES: Final = 2

K = TypeVar("K", bound=Hashable)

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
    """Return the log level of a failed reconcile after `failures` earlier ones in a row.

    Unexpected errors and repeated failures are warnings. Conflicts with other writers and late
    caches are routine, also twice in a row, and are logged at INFO.
    """
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
            # Thousands of keys with nothing to do must not block the event loop.
            await asyncio.sleep(0)
