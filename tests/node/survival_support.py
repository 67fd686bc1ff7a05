"""Servers that are killed while their Pods run."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.node.support import (
    Document,
)

#: `$$` reaches the shell only if it is doubled, as everywhere in Kubernetes.
COUNTED = "echo $$$$ >> starts; "


@contextmanager
def a_doomed_server(path: Path, pod: Document, *more: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-m", "tests.node.doomed_server", str(path), *more],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps(pod) + "\n")
        server.stdin.flush()
        assert server.stdout.readline() == "ready\n"
        try:
            yield server
        finally:
            server.kill()


def wait_for(path: Path) -> int:
    """Wait for the pid that a container writes, and return it."""
    while not path.exists() or not path.read_text().endswith("\n"):
        pass
    return int(path.read_text().split()[-1])


def starts(path: Path) -> int:
    return len((path / "starts").read_text().splitlines())
