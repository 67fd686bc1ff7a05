"""`onejob run --ui`: the dashboard of one run."""

import asyncio
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from onejob.cli.run import page
from onejob.cli.run.page import PageOptions, page_options
from onejob.dashboard.files import Files
from tests.cli.command_line import CommandLine
from tests.dashboard.support import Browser

_ADDRESS = re.compile(rb"dashboard: (https://127\.0\.0\.1:\d+)/ui/#/sign-in/([\w-]+)\?open=(\S+)")


@pytest.mark.parametrize(
    ("asked", "environment", "interactive", "expected"),
    [
        (None, {}, True, PageOptions(None, open_browser=True)),
        (None, {}, False, PageOptions(0.0, open_browser=False)),
        (None, {"CI": "true"}, True, PageOptions(0.0, open_browser=False)),
        (60.0, {"CI": "true"}, False, PageOptions(60.0, open_browser=False)),
        (0.0, {}, True, PageOptions(0.0, open_browser=True)),
    ],
)
def test_non_interactive_run_opens_no_browser(
    asked: float | None, environment: dict[str, str], interactive: bool, expected: PageOptions
) -> None:
    assert page_options(asked, environment, interactive=interactive) == expected


def test_on_a_terminal_the_page_outlives_the_job_until_ctrl_c(onejob: CommandLine) -> None:
    terminal, process = _on_a_terminal(onejob, "run", "--ui", "--", "sh", "-c", "exit 3")
    try:
        seen = _read_until(terminal, process, b"until Ctrl-C")
        found = _ADDRESS.search(seen)
        assert found is not None, seen
        url, code, first_page = (part.decode() for part in found.groups())
        assert first_page == "jobs%2Fdefault%2Fsh"
        browser = Browser(url)
        assert browser.sign_in(code) == 201
        assert browser.sign_in(code) == 401
        status, words = browser.ask("GET", "/ui/api/jobs/default/sh")
        browser.close()
        assert (status, words["failures"][0]["exitCode"]) == (200, 3)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 1, "the exit code is that of the run"
    finally:
        process.kill()
        os.close(terminal)
    assert onejob.run("get", "jobs").stdout.count("Failed") == 1


def test_without_a_terminal_the_page_ends_with_the_run(onejob: CommandLine) -> None:
    done = onejob.run("run", "--ui", "--ephemeral", "--", "true")
    assert done.returncode == 0, done.stderr
    assert _ADDRESS.search(done.stdout.encode()) is not None
    assert "stays" not in done.stdout


def test_a_time_is_kept_without_a_terminal(onejob: CommandLine) -> None:
    done = onejob.run("run", "--ui-for", "1ms", "-q", "--", "true")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert "the dashboard is served for 0.0s, or until Ctrl-C" in done.stderr


def test_run_ui_refuses_without_the_dashboard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from onejob.cli.errors import CommandError
    from onejob.clock import SystemClock
    from onejob.control_plane import Settings

    monkeypatch.setattr(page, "Files", lambda: Files(tmp_path / "absent.zip"))
    options = PageOptions(0.0, open_browser=False)
    with pytest.raises(CommandError, match="contains no dashboard"):
        asyncio.run(page.RunPage.start(Settings(tmp_path), None, SystemClock(), options))


def _on_a_terminal(onejob: CommandLine, *words: str) -> tuple[int, subprocess.Popen[str]]:
    master, slave = os.openpty()
    environment = {**onejob.environment, "NO_COLOR": "1", "COLUMNS": "200", "TERM": "xterm"}
    process = onejob.start(
        *words, stdin=slave, stdout=slave, stderr=slave, start_new_session=True, env=environment
    )
    os.close(slave)
    return master, process


def _read_until(terminal: int, process: subprocess.Popen[str], words: bytes) -> bytes:
    seen = b""
    while words not in seen and process.poll() is None:
        seen += os.read(terminal, 4096)
    return seen
