"""Server that was running and is down: reported as such, without falling back to kept runs."""

import signal
from pathlib import Path

import pytest

from tests.cli.command_line import CommandLine, QuickCommandLine


@pytest.fixture(scope="module")
def down(tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    """Return the command line of a user with a kept run, whose server was killed during a watch.

    The output of the watch is in the file `watched`.
    """
    command_line = QuickCommandLine(tmp_path_factory.mktemp("home"))
    assert (
        command_line.run("run", "-q", "--name", "kept", "--", "echo", "from a run").returncode == 0
    )
    server = command_line.start("serve", "--listen", "127.0.0.1:0")
    assert server.stdout is not None
    while "onejob logs" not in server.stdout.readline():
        assert server.poll() is None
    assert command_line.run("create", "namespace", "seen").returncode == 0
    watch = command_line.start("get", "namespaces", "-w")
    assert watch.stdout is not None
    while "seen" not in watch.stdout.readline():
        assert watch.poll() is None
    server.send_signal(signal.SIGKILL)
    server.communicate(timeout=60)
    _, errors = watch.communicate(timeout=60)
    (command_line.home / "watched").write_text(f"{watch.returncode} {errors}")
    return command_line


@pytest.mark.parametrize(
    "words",
    [
        ["get", "jobs"],
        ["get", "jobs", "-o", "json"],
        ["get", "jobs", "-w"],
        ["create", "job", "x", "--", "true"],
        ["delete", "job/x"],
        ["why", "job/never"],
        ["wait", "job/never"],
        ["logs", "-l", "a=b"],
    ],
)
def test_unreachable_server_fails_with_one_line(down: CommandLine, words: list[str]) -> None:
    done = down.run(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: the server at https://127.0.0.1:")
    assert "does not respond" in done.stderr
    assert "(start it with onejob serve" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_list_of_kept_runs_is_offered_and_given_on_request(down: CommandLine) -> None:
    assert "--runs lists kept runs" in down.run("get", "jobs").stderr
    listed = down.run("get", "jobs", "--runs")
    assert (listed.returncode, listed.stderr) == (0, "")
    assert "kept" in listed.stdout


def test_object_of_kept_run_is_shown_with_note(down: CommandLine) -> None:
    logs = down.run("logs", "job/kept")
    assert (logs.returncode, logs.stdout) == (0, "from a run\n")
    assert logs.stderr.startswith("note: the server at https://127.0.0.1:")
    assert "does not respond (start it with onejob serve); showing run 2" in logs.stderr


def test_a_watch_does_not_end_in_silence(down: CommandLine) -> None:
    said = (down.home / "watched").read_text()
    # The server may have been killed between the list and the watch.
    causes = ("closed the connection", "connection refused")
    assert said.startswith("2 error: ")
    assert any(f"{cause} (start it with onejob serve)" in said for cause in causes)
    assert said.count("\n") == 1


def test_the_data_dir_is_part_of_the_advice(down: CommandLine, tmp_path: Path) -> None:
    place = tmp_path / "my state"
    done = down.run("create", "job", "x", "--data-dir", str(place), "--", "true")
    assert f"(start one with onejob serve --data-dir '{place}')" in done.stderr


def test_version_reports_unreachable_server(down: CommandLine) -> None:
    done = down.run("version")
    assert done.returncode == 0
    assert "does not respond (start it with onejob serve)" in done.stdout
