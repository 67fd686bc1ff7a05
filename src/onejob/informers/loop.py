"""Workers that reconcile the keys of a queue; failures are retried with back-off."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from typing import TypeVar

from onejob.informers.workqueue import WorkQueue
from onejob.wire.errors import ApiError

log = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)

#: Returns the seconds after which to reconcile again, or None to wait for a change.
Reconcile = Callable[[K], Awaitable[float | None]]


class Retry(Exception):
    """A reconcile could not finish for a reason that may pass; try again with back-off."""


async def work(queue: WorkQueue[K], reconcile: Reconcile[K], *, workers: int, name: str) -> None:
    """Run `workers` workers until cancelled."""
    async with asyncio.TaskGroup() as group:
        for number in range(workers):
            group.create_task(_worker(queue, reconcile, name), name=f"{name}-{number}")


async def _worker(queue: WorkQueue[K], reconcile: Reconcile[K], name: str) -> None:
    while True:
        key = await queue.get()
        try:
            look_again = await reconcile(key)
        except (Retry, ApiError) as error:
            log.info("%s: %s will be tried again: %s", name, key, error)
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
