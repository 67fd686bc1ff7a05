"""Killing processes and sessions, and finding the survivors of a dead supervisor."""

import contextlib
import os
import select
import signal
from collections.abc import Iterable

from onejob.node.supervisor import linux, spawn
from onejob.node.supervisor.journal import Attempt, Journal, Outcome


def kill_session(leader: int) -> None:
    """SIGKILL a session: the leader's process group at once, then processes in groups of their
    own."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)
    try:
        members = [pid for pid in linux.processes() if linux.session_of(pid) == leader]
    except OSError:
        # Out of descriptors or memory. Remaining processes become our children, and are killed as
        # strays.
        return
    kill(members)


def kill(pids: Iterable[int]) -> None:
    """Send SIGKILL to the processes; ignore those that are gone or not ours."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def survivor(attempt: Attempt) -> int:
    """Return the PID of a living process of an attempt by an earlier supervisor; 0 if there is
    none."""
    if attempt.foreign:
        return 0
    for pid, ticks in (
        (attempt.pid, attempt.start_ticks),
        # A precaution: the kernel kills the rest of a namespace when its init ends.
        (attempt.command, attempt.command_ticks),
    ):
        if pid and linux.began_at(pid, ticks):
            return pid
    if attempt.pid:
        return 0
    # The supervisor was killed between starting the process and recording its PID.
    return spawn.find_marked(attempt.mark) if attempt.mark else 0


def kill_survivors(journal: Journal, now: float) -> list[int]:
    """Kill the surviving processes of a dead supervisor, and record all its open attempts as lost;
    return the PIDs of the killed."""
    survivors = []
    for attempt in journal.each():
        if attempt.outcome is not None:
            continue
        pid = survivor(attempt)
        if pid:
            survivors.append(pid)
            kill_session(pid)
        journal.end(attempt, Outcome("lost", now))
    return survivors


def wait_until_gone(pid: int) -> None:
    """Wait until a process has ended, for at most ten seconds. Blocks."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    with contextlib.closing(select.epoll()) as poll:
        poll.register(fd, select.EPOLLIN)
        poll.poll(10)
    os.close(fd)
