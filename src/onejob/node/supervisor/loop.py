"""Waits for descriptors and for moments, and calls whoever asked to be told."""

import heapq
import select
import time
import traceback
from collections.abc import Callable

#: Given what epoll saw of the descriptor.
Handler = Callable[[int], object]


class Loop:
    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._handlers: dict[int, Handler] = {}
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._timer_number = 0

    def watch(self, fd: int, handler: Handler) -> None:
        self._handlers[fd] = handler
        self._epoll.register(fd, select.EPOLLIN)

    def watches(self, fd: int) -> bool:
        return fd in self._handlers

    def unwatch(self, fd: int) -> None:
        if self._handlers.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def also_when_writable(self, fd: int, wanted: bool) -> None:
        self._epoll.modify(fd, select.EPOLLIN | (select.EPOLLOUT if wanted else 0))

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        self._timer_number += 1
        heapq.heappush(self._timers, (time.monotonic() + seconds, self._timer_number, action))

    def turn(self) -> None:
        """Wait until something happens, and have it handled."""
        for fd, mask in self._epoll.poll(self._until_next_timer()):
            handler = self._handlers.get(fd)
            if handler is not None:
                _guard(handler, mask)
        while self._timers and self._timers[0][0] <= time.monotonic():
            heapq.heappop(self._timers)[2]()

    def _until_next_timer(self) -> float:
        return max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else -1


def _guard(handler: Handler, mask: int) -> None:
    try:
        handler(mask)
    except Exception:
        # The workloads must not pay for a mistake of ours, or for a full process table.
        traceback.print_exc()
