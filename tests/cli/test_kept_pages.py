"""`onejob ui` without a server: the dashboard of kept runs, read-only."""

import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

import pytest

from onejob.cli.kept_runs import kept_runs
from tests.cli.command_line import CommandLine
from tests.dashboard.support import Browser

_ADDRESS = re.compile(r"(https://127\.0\.0\.1:\d+)/ui/#/sign-in/([\w-]+)(?:\?open=(\S+))?$")


@contextmanager
def _pages(
    onejob: CommandLine, *words: str
) -> Iterator[tuple[Browser, str, subprocess.Popen[str]]]:
    """Yield a signed-in browser, the first page, and the process."""
    process = onejob.start("ui", "--no-browser", *words)
    try:
        line = cast("IO[str]", process.stdout).readline()
        found = _ADDRESS.match(line.strip())
        assert found is not None, (line, cast("IO[str]", process.stderr).read())
        url, code, first_page = found.groups()
        browser = Browser(url)
        assert browser.ask("GET", "/runs/x/apis/batch/v1/jobs")[0] == 401
        assert browser.sign_in(code) == 201
        yield browser, first_page or "", process
        browser.close()
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 0


def test_kept_runs_are_shown_read_only(onejob: CommandLine) -> None:
    onejob.run("run", "--name", "bad", "--", "sh", "-c", "echo no more room >&2; exit 3")
    onejob.run("run", "--name", "slow", "--timeout", "1s", "--", "sleep", "60")
    before = _contents(onejob)
    with _pages(onejob) as (browser, first_page, _):
        assert first_page == ""
        assert browser.ask("GET", "/ui/api/session")[1]["readOnly"] is True
        slow, bad = browser.ask("GET", "/ui/api/runs")[1]["runs"]
        assert (slow["state"], bad["state"], bad["exitCode"]) == ("Stopped", "Failed", 1)
        path = f"/runs/{bad['id']}"
        job = f"{path}/apis/batch/v1/namespaces/default/jobs/bad"
        assert browser.ask("GET", job)[1]["status"]["failed"] == 1
        causes = browser.ask("GET", f"{path}/ui/api/causes?job=default/bad")[1]["causes"]
        assert causes["default/bad"]["text"] == "exit code 3: no more room"
        (pod,) = browser.ask("GET", f"{path}/ui/api/jobs/default/bad")[1]["pods"]
        log = f"{path}/api/v1/namespaces/default/pods/{pod['name']}/log"
        assert browser.ask("GET", log)[1] == b"no more room\n"
        state = browser.ask("GET", f"/runs/{slow['id']}/ui/api/jobs/default/slow")[1]["state"]
        assert state.startswith("job/slow was stopped")
        assert browser.ask("DELETE", job)[0] == 403
        patch = {"Content-Type": "application/merge-patch+json"}
        assert browser.ask("PATCH", job, {"spec": {"suspend": True}}, patch)[0] == 403
        assert browser.ask("GET", "/runs/absent/apis/batch/v1/jobs")[0] == 404
        assert browser.ask("GET", "/runs/..%2F..%2Fetc/apis/batch/v1/jobs")[0] == 404
    assert _contents(onejob) == before


def test_first_page_is_that_of_the_chosen_run_and_few_runs_stay_open(onejob: CommandLine) -> None:
    for number in range(6):
        onejob.run("run", "--name", f"job-{number}", "--", "true")
    with _pages(onejob, "--run", "job-3") as (browser, first_page, process):
        assert first_page.endswith("%2Fjobs%2Fdefault%2Fjob-3")
        for run in browser.ask("GET", "/ui/api/runs")[1]["runs"] * 2:
            name = run["jobs"][0]["name"]
            path = f"/runs/{run['id']}/apis/batch/v1/namespaces/default/jobs"
            (job,) = browser.ask("GET", path)[1]["items"]
            assert job["metadata"]["name"] == name
        open_files = _open_files(process.pid)
        assert len({path.parent for path in open_files if "onejob-read-" in str(path)}) == 4


@pytest.mark.parametrize("words", [(), ("--runs",)])
def test_without_runs_the_error_names_the_next_step(
    onejob: CommandLine, words: tuple[str, ...]
) -> None:
    done = onejob.run("ui", "--no-browser", *words)
    assert done.returncode == 2
    assert "start one with onejob" in done.stderr


def _contents(onejob: CommandLine) -> dict[str, bytes]:
    """Return the contents of all files of the runs' state."""
    return {
        str(path): path.read_bytes()
        for folder, _ in kept_runs(onejob.data_dir / "runs")
        for path in folder.iterdir()
        if path.is_file()
    }


def _open_files(pid: int) -> list[Path]:
    return [path.readlink() for path in Path(f"/proc/{pid}/fd").iterdir() if path.is_symlink()]
