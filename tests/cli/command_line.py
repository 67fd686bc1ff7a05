"""The real command, as users run it."""

import io
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from onejob.cli.main import run_command

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"


class CommandLine:
    """`onejob` in an environment of its own: nothing of this user's is read or changed."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.data_dir = home / "state" / "onejob"
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "XDG_STATE_HOME": str(home / "state"),
            "LANG": "C.UTF-8",
            "PYTHONPATH": str(ROOT / "src"),
        }

    def arguments(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "onejob", *words]

    def run(
        self, *words: str, stdin: str = "", timeout: float = 60, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.arguments(*words),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
            env={**self.environment, **environment},
            cwd=self.home,
            check=False,
        )

    def start(self, *words: str, **options: Any) -> subprocess.Popen[str]:
        settings: dict[str, Any] = {
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "text": True,
            "env": self.environment,
            "cwd": self.home,
        }
        return subprocess.Popen(self.arguments(*words), **{**settings, **options})


class QuickCommandLine(CommandLine):
    """Command line without a new process per command, for commands that only query a server."""

    def run(
        self, *words: str, stdin: str = "", timeout: float = 60, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        if words[0] in ("run", "serve"):
            return super().run(*words, stdin=stdin, timeout=timeout, **environment)
        return self._run_here(words, io.StringIO(), environment)

    def on_terminal(self, *words: str, columns: int = 80) -> subprocess.CompletedProcess[str]:
        """Return the output for a terminal of that width."""
        return self._run_here(words, _Screen(), {"COLUMNS": str(columns), "TERM": "xterm"})

    def _run_here(
        self, words: Sequence[str], output: io.StringIO, environment: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        errors = io.StringIO()
        before, place = dict(os.environ), Path.cwd()
        os.environ.clear()
        os.environ.update(self.environment, **environment)
        os.chdir(self.home)
        try:
            with redirect_stdout(output), redirect_stderr(errors):
                code = run_command(words)
        finally:
            os.chdir(place)
            os.environ.clear()
            os.environ.update(before)
        return subprocess.CompletedProcess(words, code, output.getvalue(), errors.getvalue())


class _Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def job_yaml(name: str, script: str, *, spec: str = "", template: str = "") -> str:
    """Return a Job that runs a shell script; `spec` and `template` are further lines of YAML."""
    return (
        f"apiVersion: batch/v1\nkind: Job\nmetadata: {{name: {name}}}\nspec:\n"
        + "".join(f"  {line}\n" for line in spec.splitlines())
        + "  template:\n    spec:\n      restartPolicy: Never\n"
        + "".join(f"      {line}\n" for line in template.splitlines())
        + "      containers:\n      - name: main\n        image: busybox\n"
        + f"        command: [sh, -c, {script!r}]\n"
    )
