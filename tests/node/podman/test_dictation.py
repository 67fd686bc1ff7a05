"""Output of containers as the engine's client prints it."""

import asyncio
from pathlib import Path

import pytest

from onejob.node.podman.logs import LogClientImport, OutputCommands


def test_dictation_writes_the_lines_of_the_client(tmp_path: Path) -> None:
    printing = ("echo", "2026-01-02T03:04:05.000000006Z hello")

    async def main() -> None:
        await LogClientImport(OutputCommands(printing, printing), tmp_path / "log").finish()

    asyncio.run(main())
    assert (tmp_path / "log").read_bytes().endswith(b" hello\n")


def test_dictation_ends_when_the_client_cannot_be_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Regression: at the limit of processes, the end of the container was not reported."""
    missing = (str(tmp_path / "no-such-client"), "logs")

    async def main() -> None:
        dictation = LogClientImport(OutputCommands(missing, missing), tmp_path / "log")
        await dictation.finish()

    asyncio.run(main())
    assert "is incomplete" in caplog.text
