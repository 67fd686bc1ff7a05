"""Output of containers as the engine's client prints it."""

from pathlib import Path

import pytest

from onejob.node.podman.logs import LogClientImport, OutputCommands


async def test_dictation_writes_the_lines_of_the_client(tmp_path: Path) -> None:
    printing = ("echo", "2026-01-02T03:04:05.000000006Z hello")
    await LogClientImport(OutputCommands(printing, printing), tmp_path / "log").finish()
    assert (tmp_path / "log").read_bytes().endswith(b" hello\n")


async def test_dictation_ends_when_the_client_cannot_be_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Regression: at the limit of processes, the end of the container was not reported."""
    missing = (str(tmp_path / "no-such-client"), "logs")
    dictation = LogClientImport(OutputCommands(missing, missing), tmp_path / "log")
    await dictation.finish()
    assert "is incomplete" in caplog.text
