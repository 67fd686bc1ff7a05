"""Ending processes, whole sessions of them, and finding those of a supervisor that died."""

import contextlib
import os
import select
import signal
from collections.abc import Iterable

from onejob.node.supervisor import linux, spawn
from onejob.node.supervisor.journal import Attempt


def kill_session(leader: int) -> None:
    """SIGKILL a session: its first group at once, then whoever made groups of their own."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)
    try:
        members = [pid for pid in linux.processes() if linux.session_of(pid) == leader]
    except OSError:
        # Out of descriptors or memory. What is left becomes our child, and is ended as a stray.
        return
    kill(members)


def kill(pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def survivor(attempt: Attempt) -> int:
    """The living process of an attempt that another supervisor began; 0 if there is none."""
    if attempt.foreign:
        return 0
    for pid, ticks in (
        (attempt.pid, attempt.start_ticks),
        # Of a namespace whose init is gone the kernel ends the rest: this is only to be sure.
        (attempt.command, attempt.command_ticks),
    ):
        if pid and linux.began_at(pid, ticks):
            return pid
    if attempt.pid:
        return 0
    # Killed between starting the process and writing down its pid.
    return spawn.find_marked(attempt.mark) if attempt.mark else 0


def wait_until_gone(pid: int) -> None:
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    with contextlib.closing(select.epoll()) as poll:
        poll.register(fd, select.EPOLLIN)
        poll.poll(10)
    os.close(fd)
