"""Background tasks of a control plane that start and stop together."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

Loop = Coroutine[Any, Any, None]


class Background:
    """Loops that are collected first and run as tasks from `start` on.

    `on_end` is called with each task that ends; the owner decides whether it was meant to.
    """

    def __init__(self, on_end: Callable[[asyncio.Task[None]], None]) -> None:
        self._on_end = on_end
        self._waiting: list[Loop] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._started = False

    def add(self, loop: Loop) -> None:
        """Run a loop from `start` on, or at once if that has been called."""
        if self._started:
            self.follow(asyncio.create_task(loop))
        else:
            self._waiting.append(loop)

    def follow(self, task: asyncio.Task[None]) -> None:
        """Treat a task that runs already as one of these."""
        task.add_done_callback(self._on_end)
        self._tasks.append(task)

    def start(self) -> None:
        self._started = True
        waiting, self._waiting = self._waiting, []
        for loop in waiting:
            self.follow(asyncio.create_task(loop))

    async def cancel(self) -> None:
        """End all tasks, and discard the loops that never started."""
        waiting, self._waiting = self._waiting, []
        for loop in waiting:
            loop.close()
        await _cancel(self._tasks)


async def _cancel(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
