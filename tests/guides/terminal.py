"""Shell of a reader, with an empty home folder and a second terminal for servers.

Commands run as they are typed, with one exception: servers listen on a free port, whatever the page
states, because tests share the machine.
"""

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

from tests.e2e.serving import end_supervisors
from tests.guides.pages import ROOT

#: A server prints this once it is ready.
_READY = "serves Kubernetes API"
#: Commands that run until Ctrl-C in the second terminal, and are ended before the next of them.
_RUNS_ON = ("onejob serve", "onejob controller")

_ONEJOB = """#!/bin/sh
if [ "$1" = serve ]; then exec {python} -m onejob "$@" --listen 127.0.0.1:0; fi
exec {python} -m onejob "$@"
"""


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base) / "onejob" / "guides"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


class Terminal:
    def __init__(self, home: Path, *, patience: float = 120.0) -> None:
        """Start a shell. `patience` is the number of seconds that a command may take."""
        self._home = home
        self._patience = patience
        self._state = home.parent / f"{home.name}-terminal"
        self._state.mkdir()
        home.mkdir()
        self._write_program()
        self._output = (self._state / "output").open("wb")
        self._ended = self._state / "ended"
        os.mkfifo(self._ended)
        self._endings = os.open(self._ended, os.O_RDWR)
        self._shell = self._start(["bash", "--norc"], stdin=subprocess.PIPE)
        self._second: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._end_second()
        finally:
            os.killpg(self._shell.pid, signal.SIGTERM)
            assert self._shell.stdin is not None
            self._shell.stdin.close()
            self._shell.wait(timeout=30)
            end_supervisors(self._home)
            os.close(self._endings)
            self._output.close()

    @property
    def text(self) -> str:
        return (self._state / "output").read_text(errors="replace")

    def save(self, name: str, text: str) -> None:
        """Save a file in the shell's current folder, as its user would."""
        saved = self._state / "saved"
        saved.write_text(text)
        self.type(f'mkdir -p "$(dirname {name})" && cp "{saved}" {name}')

    def type(self, command: str, exit_code: int = 0) -> str:
        """Run a command and return its output; it must end with this code."""
        before = len(self.text)
        if command.startswith(_RUNS_ON) and not command.endswith("&"):
            self._type_in_second(command)
            return self.text[before:]
        code = self._type_in_shell(command)
        if command.startswith("onejob serve"):
            self._wait_until_ready(before)
        printed = self.text[before:]
        assert code == exit_code, f"{command}\nended with {code}, not {exit_code}:\n{printed}"
        return printed

    def _type_in_shell(self, command: str) -> int:
        (self._state / "typed").write_text(command + "\n")
        line = f'. "{self._state / "typed"}" < /dev/null; echo $? > "{self._ended}"\n'
        assert self._shell.stdin is not None
        self._shell.stdin.write(line.encode())
        self._shell.stdin.flush()
        readable, _, _ = select.select([self._endings], [], [], self._patience)
        assert readable, f"{command}\nhas not ended after {self._patience:.0f} s:\n{self.text}"
        return int(os.read(self._endings, 64))

    def _type_in_second(self, command: str) -> None:
        self._end_second()
        before = len(self.text)
        # `exec`, so that Ctrl-C reaches the command and not a shell around it.
        self._second = self._start(["bash", "-c", f"exec {command}"])
        if command.startswith("onejob serve"):
            self._wait_until_ready(before)

    def _end_second(self) -> None:
        if self._second is None:
            return
        self._second.send_signal(signal.SIGINT)
        code = self._second.wait(timeout=30)
        self._second = None
        assert code in (0, 130, -signal.SIGINT), f"ended with {code} on Ctrl-C:\n{self.text}"

    def _wait_until_ready(self, before: int) -> None:
        give_up = time.monotonic() + self._patience
        while _READY not in self.text[before:]:
            assert self._second is None or self._second.poll() is None, self.text[before:]
            assert time.monotonic() < give_up, self.text[before:]
            time.sleep(0.02)

    def _start(
        self, command: list[str], stdin: int = subprocess.DEVNULL
    ) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            command,
            cwd=self._home,
            env=self._environment(),
            stdin=stdin,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def _environment(self) -> dict[str, str]:
        programs = (
            f"{self._home}/bin:{self._state}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        )
        return {
            "PATH": programs,
            "HOME": str(self._home),
            "USER": "reader",
            "LANG": "C.UTF-8",
            "CHECKOUT": str(ROOT),
            # Downloads and builds are shared.
            "CACHE": str(_cache()),
            "GOPATH": os.environ.get("GOPATH", str(Path.home() / "go")),
            "GOCACHE": os.environ.get("GOCACHE", str(Path.home() / ".cache" / "go-build")),
        }

    def _write_program(self) -> None:
        program = self._state / "onejob"
        program.write_text(_ONEJOB.format(python=sys.executable))
        program.chmod(0o755)
