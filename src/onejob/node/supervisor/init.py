"""Init process (PID 1) of a PID namespace: a fork of the supervisor that never executes another
program.

It forwards every signal to the container's command, reaps the namespace's orphans, and ends with
the command. The kernel then kills all remaining processes of the namespace, and only after that
does the supervisor see the end of this process.
"""

import contextlib
import os
import signal
import struct
from typing import NoReturn

from onejob.node.supervisor import linux
from onejob.node.supervisor.usage import UNKNOWN, Usage, usage_of

NAME = b"onejob-init"
#: As integers: a fork that touches few objects has few pages to copy.
_ALL_SIGNALS = tuple(int(number) for number in signal.valid_signals())
_CHILD_ENDED = int(signal.SIGCHLD)
#: Wait status, peak memory in KiB and CPU time in milliseconds.
_END = struct.Struct("<IQQ")


def serve(command: int, status: int) -> NoReturn:
    """Wait for the command, and write its wait status and usage to `status`. Requires all signals
    to be blocked.

    Without a command (0), keep the namespace of a Pod alive until killed.
    """
    close_others(*([status] if status >= 0 else ()))
    ended = until_ended(command)
    assert ended is not None
    # If the supervisor was killed, there is no reader left.
    with contextlib.suppress(OSError):
        os.write(status, _END.pack(ended[0], *ended[1]))
    os._exit(0)


def until_ended(command: int, seconds: float | None = None) -> tuple[int, Usage] | None:
    """Forward signals to the command and reap orphans until it ends; return its wait status and
    usage. None if it runs without a signal for that many seconds. Requires all signals to be
    blocked."""
    while True:
        if seconds is None:
            arrived = signal.sigwaitinfo(_ALL_SIGNALS)
        elif (within := signal.sigtimedwait(_ALL_SIGNALS, seconds)) is not None:
            arrived = within
        else:
            return None
        if arrived.si_signo != _CHILD_ENDED:
            if command:
                # The command may have changed its user, as sudo does.
                with contextlib.suppress(PermissionError):
                    os.kill(command, arrived.si_signo)
            continue
        end = None
        while (ended := _reap())[0]:
            if ended[0] == command:
                end = ended[1], ended[2]
        if end is not None:
            return end


def drop_signals() -> None:
    """Discard all pending signals."""
    while signal.sigtimedwait(_ALL_SIGNALS, 0) is not None:
        pass


def hide() -> None:
    """Deny containers that run as the same user access to this process, which is a copy of the
    supervisor.

    Without root there is nothing in it that this user could not see anyway, and `exec` needs the
    access.
    """
    if os.geteuid() == 0:
        linux.hide_memory()


def end_of_command(fd: int) -> tuple[int, Usage] | None:
    """Return the command's wait status as from `waitpid`, and its usage; None if init was killed
    before the command ended."""
    text = os.read(fd, _END.size)
    if len(text) != _END.size:
        return None
    status, *usage = _END.unpack(text)
    return status, Usage(*usage)


def _reap() -> tuple[int, int, Usage]:
    """Return pid, status and usage of an ended child; pid 0 if there is none."""
    try:
        pid, status, rusage = os.wait4(-1, os.WNOHANG)
    except ChildProcessError:
        return 0, 0, UNKNOWN
    return pid, status, usage_of(rusage)


def close_others(*kept: int) -> None:
    """Close all other descriptors of the supervisor and of other containers, and replace stdout and
    stderr."""
    os.dup2(0, 1)
    os.dup2(0, 2)
    first = 3
    for fd in sorted(kept):
        linux.close_from(first, fd - 1)
        first = fd + 1
    linux.close_from(first)
