"""Run in the background (`run --detach`): a child process, with its output in the run's folder.

The parent validates everything before it forks, and returns once the child has created all
objects. It forks before any thread or event loop exists.
"""

import os
import sys
from pathlib import Path

from onejob.cli.kept_runs import OUTPUT


class Background:
    """The child's side: reports to the parent over a pipe."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe

    def enter(self, folder: Path) -> None:
        """Redirect all output to a file in the folder of the run, whose errors go there, too."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        output = os.open(folder / OUTPUT, flags, 0o600)
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        os.write(self._pipe, f"{folder}\n".encode())

    def created(self, run_id: str) -> None:
        """Report that all objects exist: from now on the run is on its own."""
        os.write(self._pipe, f"{run_id}\n".encode())
        os.close(self._pipe)


def detach() -> "Background | int":
    """Fork. Return the child's side in the child, and in the parent, later, the exit code."""
    read, write = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        os.close(read)
        # Not a child of this terminal: no signal of it is meant for the run.
        os.setsid()
        nowhere = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nowhere, 0)
        os.close(nowhere)
        return Background(write)
    os.close(write)
    with open(read, encoding="utf-8") as pipe:
        reported = pipe.read().splitlines()
    if len(reported) == 2:
        run_id = reported[1]
        print(f"run/{run_id} started in the background")
        print(f"  onejob attach run/{run_id}   # follow it")
        print(f"  onejob stop run/{run_id}")
        return 0
    _, status = os.waitpid(child, 0)
    if reported:
        sys.stderr.write((Path(reported[0]) / OUTPUT).read_text("utf-8", "replace"))
    return os.waitstatus_to_exitcode(status)
