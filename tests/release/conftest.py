"""Fixture: a separate command line."""

from pathlib import Path

import pytest

from tests.cli.command_line import CommandLine


@pytest.fixture
def onejob(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path)
