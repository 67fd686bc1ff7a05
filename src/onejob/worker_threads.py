"""Thread policy: a lack of threads delays work, and refuses none.

At its limit of tasks (pids.max of a cgroup, RLIMIT_NPROC) or of address space a process cannot
start a thread. Python then raises RuntimeError wherever one is needed: in `asyncio.to_thread`, in
name resolution, in requests that are processed off the loop. All of these use this module.
"""

import asyncio
import errno
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar
from weakref import WeakSet

P = ParamSpec("P")
T = TypeVar("T")

_prepared: WeakSet[asyncio.AbstractEventLoop] = WeakSet()


class WorkerThreads(ThreadPoolExecutor):
    """Thread pool that continues with its existing threads if no further one can be started.

    Guarantees:
        Submitted work runs exactly once. If no thread can be started, it runs on an existing thread
        of the pool; if there is none, it runs before `submit` returns.
    """

    def __init__(self, most: int | None = None, name: str = "worker") -> None:
        super().__init__(most, name)
        #: Threads of a pool end only with it.
        self._has_thread = False
        self._closed = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        work = _Work(lambda: fn(*args, **kwargs))
        try:
            super().submit(work.run)
            self._has_thread = True
        except RuntimeError:
            if self._closed:
                raise
            # It is in the queue all the same, for the next free thread.
            if not self._has_thread:
                work.run()
        return work.done

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._closed = True
        super().shutdown(wait, cancel_futures=cancel_futures)


class _Work:
    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self._unclaimed = threading.Lock()
        self.done: Future[Any] = Future()

    def run(self) -> None:
        if not self._unclaimed.acquire(blocking=False):
            # Already run by `submit`.
            return
        if not self.done.set_running_or_notify_cancel():
            return
        try:
            self.done.set_result(self._function())
        except BaseException as error:
            self.done.set_exception(error)


def start_daemon(target: Callable[[], object], name: str) -> threading.Thread:
    """Start a thread that does not keep the process from ending. Raises OSError (EAGAIN)."""
    thread = threading.Thread(target=target, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        raise BlockingIOError(errno.EAGAIN, f"cannot start a thread ({error})") from error
    return thread


async def prepare_threads() -> None:
    """Give the running loop a pool that tolerates a lack of threads, with its first thread.

    Idempotent. libuv aborts the process if it cannot start the threads that resolve names, so these
    are started now.
    """
    loop = asyncio.get_running_loop()
    if loop in _prepared:
        return
    _prepared.add(loop)
    loop.set_default_executor(WorkerThreads())
    await asyncio.to_thread(_nothing)
    # Numeric, so that no DNS server is queried; without a type, so that it runs in a thread.
    await loop.getaddrinfo("127.0.0.1", 0)


def _nothing() -> None:
    """Do nothing: forces the start of a thread."""
