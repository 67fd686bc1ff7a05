"""PID namespaces: creating them, and forking children into them.

A process cannot change its own PID namespace, so a process for another namespace is forked into it.
"""

import errno
import math
import os
import signal
from collections.abc import Callable
from functools import lru_cache
from typing import NoReturn

from onejob.node.supervisor import init, linux, mounting
from onejob.node.supervisor.failures import text_of
from onejob.node.supervisor.pressure import DESCRIPTORS, MEMORY, pressure_of

#: Golden-ratio step that spreads the first PIDs of containers: successive ones are far apart.
_SPREAD = 0.6180339887
#: The kernel wraps around to this PID after the highest one.
_MIN_PID = 300


def fork_first() -> int:
    """Fork a child that is PID 1 of a new namespace. Raises OSError."""
    return _quietly(lambda: linux.clone(linux.CLONE_NEWPID))


def fork_in_namespace(pid: int) -> int:
    """Fork a child into the namespace of process `pid`. Raises OSError."""
    read, write = os.pipe2(os.O_CLOEXEC)
    namespace = -1
    try:
        namespace = os.open(f"/proc/{pid}/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        middle = fork_here()
        if middle == 0:
            _fork_for_parent(namespace, write)
            return 0
    except OSError:
        os.close(read)
        raise
    finally:
        os.close(write)
        if namespace >= 0:
            os.close(namespace)
    with open(read, "rb") as file:
        text = file.read()
    number = os.waitstatus_to_exitcode(os.waitpid(middle, 0)[1])
    if not text:
        raise OSError(number, f"cannot enter the PID namespace: {os.strerror(number)}")
    return int(text)


def fork_here() -> int:
    """Fork a child in our own namespace. Raises OSError."""
    return _quietly(os.fork)


def _fork_for_parent(namespace: int, report: int) -> None:
    """Fork a child of our parent into a namespace; only that child returns. A process that has
    selected a namespace for its children cannot always revert that, so a short-lived process does
    it."""
    code, pid = 1, -1
    try:
        linux.setns(namespace, linux.CLONE_NEWPID)
        pid = linux.clone(linux.CLONE_PARENT)
        if pid:
            os.write(report, b"%d" % pid)
    except OSError as error:
        code = error.errno or 1
    finally:
        if pid:
            os._exit(code)


def _quietly(fork: Callable[[], int]) -> int:
    """Fork with all signals blocked in the child: it loses none, however early, and none reaches
    the supervisor's handlers."""
    pid = -1
    linux.block_signals()
    try:
        pid = fork()
        return pid
    finally:
        if pid != 0:
            linux.unblock_signals()


def spread_pids(own: int) -> None:
    """Set the namespace's first PID to one that no other container starts with, because scripts
    name files in the host's /tmp after their PID. Called in PID 1; `own` is its PID in the
    supervisor's namespace. Raises OSError."""
    room, step = spacing()
    fd = os.open("/proc/sys/kernel/ns_last_pid", os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, b"%d" % (_MIN_PID + own * step % room))
    finally:
        os.close(fd)


@lru_cache(maxsize=1)
def spacing() -> tuple[int, int]:
    """Return the number of possible first PIDs, and the distance between two successive
    containers'."""
    with open("/proc/sys/kernel/pid_max") as file:
        room = int(file.read()) - 1 - _MIN_PID
    step = int(room * _SPREAD) | 1
    # Only a step coprime to the range gives each process a different place.
    while math.gcd(step, room) > 1:
        step += 2
    return room, step


def problem() -> str:
    """Probe by trial whether PID namespaces can be created; return the reason why not, or "".
    Raises OSError if that cannot be determined at present."""
    read, write = os.pipe2(os.O_CLOEXEC)
    try:
        mounting.enter_user_namespace()
        pid = fork_first()
        if pid == 0:
            _probe_support(write)
    except OSError as error:
        os.close(read)
        if pressure_of(error) in (MEMORY, DESCRIPTORS) or error.errno == errno.EAGAIN:
            raise
        return text_of(error)
    finally:
        os.close(write)
    with open(read, encoding="utf-8") as file:
        why = file.read()
    return why if os.waitpid(pid, 0)[1] == 0 else "pid 1 was killed"


def _probe_support(report: int) -> NoReturn:
    try:
        spread_pids(linux.own_pid())
        mounting.private_namespace()
        mounting.mount_proc("/proc")
        os._exit(0)
    except OSError as error:
        os.write(report, text_of(error).encode())
        os._exit(0)
    finally:
        os._exit(1)


class PodNamespaces:
    """Shared PID namespaces of Pods with `shareProcessNamespace`, each kept alive by a PID 1 that
    runs no command and ends with the supervisor."""

    def __init__(self) -> None:
        self._holders: dict[str, int] = {}
        self.pids: set[int] = set()

    def of(self, uid: str) -> int:
        """Return the PID of the process that holds the Pod's namespace, creating it if necessary.
        Raises OSError."""
        holder = self._holders.get(uid)
        if holder is None:
            holder = self._holders[uid] = _hold()
            self.pids.add(holder)
        return holder

    def end(self, uid: str) -> None:
        """Kill all remaining processes of the Pod."""
        holder = self._holders.pop(uid, None)
        if holder is not None:
            os.kill(holder, signal.SIGKILL)

    def reaped(self, pid: int) -> None:
        """Handle the end of a namespace's holder process."""
        self.pids.discard(pid)
        for uid, holder in list(self._holders.items()):
            if holder == pid:
                del self._holders[uid]


def _hold() -> int:
    """Create a namespace; return the PID of its first process once it can be joined."""
    spacing()
    arguments = linux.argument_area()
    read, write = os.pipe2(os.O_CLOEXEC)
    try:
        pid = fork_first()
        if pid == 0:
            _run_holder(write, arguments)
    finally:
        os.close(write)
    with open(read, "rb") as file:
        if not file.read():
            raise OSError(errno.ECHILD, "the init of the Pod's PID namespace ended")
    return pid


def _run_holder(ready: int, arguments: tuple[int, int]) -> NoReturn:
    try:
        linux.die_with_parent()
        os.setsid()
        spread_pids(linux.own_pid())
        linux.call_process(init.NAME, arguments)
        init.hide()
        os.write(ready, b"ready")
        init.serve(0, -1)
    finally:
        os._exit(1)
