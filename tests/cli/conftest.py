"""Fixtures: a separate command line, and a server for the tests that need one."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command_line import CommandLine, QuickCommandLine
from tests.e2e.serving import end_supervisors


@pytest.fixture
def onejob(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    """Yield the command line of a user whose server is running."""
    command_line = QuickCommandLine(tmp_path_factory.mktemp("home"))
    server = command_line.start("serve", "--listen", "127.0.0.1:0")
    assert server.stdout is not None
    assert server.stderr is not None
    lines = []
    for line in server.stdout:
        lines.append(line)
        if "onejob logs" in line:
            break
    else:
        pytest.fail(f"the server did not start: {lines} {server.stderr.read()}")
    try:
        yield command_line
    finally:
        server.send_signal(signal.SIGTERM)
        try:
            assert server.wait(60) == 0
        finally:
            server.stdout.close()
            server.stderr.close()
            end_supervisors(command_line.home)
