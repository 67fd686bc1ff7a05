"""Pid 1 of a PID namespace: a fork of the supervisor that never becomes another program.

It passes on every signal it is sent to the container's command, reaps whatever the namespace
orphans, and ends with the command. Then the kernel ends all the rest, and only when that is done
does the supervisor see the end of this process.
"""

import contextlib
import os
import signal
from typing import NoReturn

from onejob.node.supervisor import linux

NAME = b"onejob-init"
#: As numbers: a fork that touches few objects has few pages to copy.
_ALL_SIGNALS = tuple(int(number) for number in signal.valid_signals())
_CHILD_ENDED = int(signal.SIGCHLD)
_STATUS_BYTES = 4


def serve(command: int, status: int) -> NoReturn:
    """With all signals blocked: wait for the command, and write how it ended to `status`. Without
    a command (0), hold the namespace of a Pod until killed."""
    status = _keep_only(status)
    while True:
        number = signal.sigwaitinfo(_ALL_SIGNALS).si_signo
        if number != _CHILD_ENDED:
            if command:
                # It may have taken another identity, as sudo does.
                with contextlib.suppress(PermissionError):
                    os.kill(command, number)
            continue
        while (ended := _reap())[0]:
            if ended[0] == command:
                # There is nobody to be told if the supervisor was killed.
                with contextlib.suppress(OSError):
                    os.write(status, ended[1].to_bytes(_STATUS_BYTES, "little"))
                os._exit(0)


def hide() -> None:
    """Pid 1 is a copy of the supervisor: containers that run as its user shall not look inside.
    Without root that is nothing which this user could not see anyway, and `exec` needs to."""
    if os.geteuid() == 0:
        linux.hide_memory()


def wait_status(fd: int) -> int | None:
    """How the command ended, as `waitpid` has it; None if init was killed before it did."""
    text = os.read(fd, _STATUS_BYTES)
    return int.from_bytes(text, "little") if len(text) == _STATUS_BYTES else None


def _reap() -> tuple[int, int]:
    try:
        return os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return 0, 0


def _keep_only(fd: int) -> int:
    """Let go of all that belongs to the supervisor and to other containers."""
    os.dup2(0, 1)
    os.dup2(0, 2)
    if fd < 0:
        linux.close_from(3)
        return fd
    os.dup2(fd, 3, inheritable=False)
    linux.close_from(4)
    return 3
