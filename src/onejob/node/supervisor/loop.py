"""Event loop of the supervisor: epoll and timers."""

import heapq
import os
import select
import time
import traceback
from collections.abc import Callable

#: Called with the epoll event mask of the descriptor.
Handler = Callable[[int], object]

#: Limit of our own output file, which must not use up the workloads' disk space.
_MAX_OUTPUT_BYTES = 1 << 20


class Loop:
    """Single-threaded event loop."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._handlers: dict[int, Handler] = {}
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._timer_number = 0

    def watch(self, fd: int, handler: Handler) -> None:
        """Call the handler whenever the descriptor can be read."""
        self._handlers[fd] = handler
        self._epoll.register(fd, select.EPOLLIN)

    def watches(self, fd: int) -> bool:
        """Return whether the descriptor is watched."""
        return fd in self._handlers

    def unwatch(self, fd: int) -> None:
        """Stop watching a descriptor; one that is not watched is ignored."""
        if self._handlers.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def also_when_writable(self, fd: int, wanted: bool) -> None:
        self._epoll.modify(fd, select.EPOLLIN | (select.EPOLLOUT if wanted else 0))

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Call `action` after some seconds."""
        self._timer_number += 1
        heapq.heappush(self._timers, (time.monotonic() + seconds, self._timer_number, action))

    def turn(self) -> None:
        """Wait for events or timers, and run their handlers."""
        for fd, mask in self._epoll.poll(self.until_next_timer()):
            handler = self._handlers.get(fd)
            if handler is not None:
                try:
                    handler(mask)
                except Exception:
                    # Workloads must not suffer from a bug of ours, or from a full disk.
                    report_exception()
        while self._timers and self._timers[0][0] <= time.monotonic():
            try:
                heapq.heappop(self._timers)[2]()
            except Exception:
                report_exception()

    def until_next_timer(self) -> float:
        """Return the seconds until the next timer; -1 if there is none."""
        return max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else -1


def report_exception() -> None:
    report(traceback.format_exc())


def report(text: str) -> None:
    """Write a timestamped message to stderr, up to the size limit. Never fails."""
    try:
        if os.fstat(2).st_size < _MAX_OUTPUT_BYTES:
            os.write(2, f"{time.strftime('%Y-%m-%dT%H:%M:%S')} {text.rstrip()}\n".encode())
    except OSError:
        # The disk is full: the message is lost, and nothing depends on it.
        return
