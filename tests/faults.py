"""Fault injection for system calls of a supervisor, controlled by files in a folder.

A supervisor started under `faulty_supervisors` reads that folder before each of the calls below. A
file with the call's name makes it fail with the error that the file names, or, for `pwrite`, accept
few bytes at a time. Standard library only: a supervisor has nothing else.
"""

import errno
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_CALLS = ("fork", "posix_spawn", "pipe2", "pwrite", "posix_fallocate", "listdir", "execve", "fsync")
_SHORT = "short"


@contextmanager
def faulty_supervisors(folder: Path) -> Iterator["Faults"]:
    """Inject faults into the supervisors that this process starts inside the context."""
    from onejob.node.process import supervisor_client

    folder.mkdir(parents=True, exist_ok=True)
    plain = supervisor_client._BOOTSTRAP
    supervisor_client._BOOTSTRAP = bootstrap(plain, folder)
    try:
        yield Faults(folder)
    finally:
        supervisor_client._BOOTSTRAP = plain


def bootstrap(plain: str, folder: Path) -> str:
    """Return the code that starts a supervisor with faults."""
    place = str(Path(__file__).resolve().parents[1])
    return (
        f"import sys; sys.path.append({place!r}); "
        f"from tests.faults import install; install({str(folder)!r}); {plain}"
    )


class Faults:
    """Faults of the supervisors that use one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def fail(self, call: str, number: int) -> None:
        """Make the call fail with this errno from now on."""
        self._say(call, errno.errorcode[number])

    def shorten(self, call: str) -> None:
        """Make the call accept few bytes at a time from now on."""
        self._say(call, _SHORT)

    def mend(self, call: str) -> None:
        """End the fault of the call."""
        (self._folder / call).unlink(missing_ok=True)

    def happened(self, call: str) -> int:
        """Return the number of calls that failed or were shortened."""
        try:
            return len((self._folder / f"{call}.log").read_bytes())
        except FileNotFoundError:
            return 0

    def _say(self, call: str, what: str) -> None:
        fresh = self._folder / f"{call}.new"
        fresh.write_text(what)
        fresh.rename(self._folder / call)


def install(folder: str) -> None:
    """Patch the calls in the supervisor; runs before anything else."""
    for name in _CALLS:
        setattr(os, name, _faulty(name, getattr(os, name), folder))


def _faulty(name: str, real: Callable[..., Any], folder: str) -> Callable[..., Any]:
    path = f"{folder}/{name}"

    def call(*arguments: Any, **more: Any) -> Any:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return real(*arguments, **more)
        text = os.read(fd, 100).decode()
        os.close(fd)
        log = os.open(path + ".log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        os.write(log, b".")
        os.close(log)
        if text == _SHORT:
            fd, data, offset = arguments
            return real(fd, memoryview(data)[: random.randint(1, max(len(data) // 2, 1))], offset)
        number = getattr(errno, text)
        raise OSError(number, os.strerror(number))

    return call
