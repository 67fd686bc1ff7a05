"""Runs without a terminal of their own: `run --detach`, `attach`, `stop`, and their names."""

import signal
import time
from pathlib import Path

import pytest

from onejob.cli.kept_runs import is_under_way
from onejob.cli.manifests.job_from_command import name_for
from tests.cli.command_line import CommandLine, QuickCommandLine

#: Says that it runs, and then lasts until it is stopped.
LASTING = "trap 'echo stopping; exit 3' TERM; echo begun; while :; do sleep 0.05; done"


@pytest.fixture
def quick(tmp_path: Path) -> CommandLine:
    return QuickCommandLine(tmp_path)


def await_output(onejob: CommandLine, text: str) -> None:
    give_up = time.monotonic() + 60
    while not any(text in path.read_text() for path in onejob.home.rglob("output.log")):
        assert time.monotonic() < give_up, f"no {text!r}"
        time.sleep(0.02)


def test_detached_run_is_attached_to_and_stopped_by_name(quick: CommandLine) -> None:
    begun = quick.run("run", "--detach", "--name", "train", "--", "sh", "-c", LASTING)
    assert begun.returncode == 0, begun.stderr
    run_id = begun.stdout.split()[0]
    assert begun.stdout.splitlines()[0] == f"{run_id} started in the background"
    follower = quick.start("attach", "train")
    await_output(quick, "begun")
    assert quick.run("get", run_id, "-o", "json").stdout.count('"state": "Running"') == 1
    stopped = quick.run("stop", "job/train")
    assert stopped.stdout == (
        f"{run_id} stopped (onejob run --resume {run_id[4:]} continues it)\n"
    ), stopped.stderr
    output, _ = follower.communicate(timeout=60)
    assert follower.returncode == 128 + signal.SIGTERM
    assert "begun" in output
    assert "stopping" in output
    again = quick.run("stop", run_id)
    assert again.stdout == f"{run_id} has already ended (Stopped)\n"
    assert "it was stopped by onejob stop" in quick.run("why", "job/train").stdout


def test_detached_run_that_cannot_start_reports_to_its_terminal(quick: CommandLine) -> None:
    done = quick.run("run", "--detach", "--", "echo hi")
    assert (done.returncode, done.stderr) == (
        2,
        "error: 'echo hi' is one word, not a command line (onejob run -- echo hi)\n",
    )
    done = quick.run("run", "--detach", "--ephemeral", "--", "true")
    assert done.returncode == 2
    assert "--detach cannot be combined with --ephemeral" in done.stderr


def test_attach_returns_exit_code_of_ended_run(quick: CommandLine) -> None:
    script = "echo a; echo b; exit 4"
    done = quick.run("run", "--detach", "--name", "fails", "--", "sh", "-c", script)
    assert done.returncode == 0
    attached = quick.run("attach", "job/fails")
    assert attached.returncode == 1
    assert "] a\n" in attached.stdout
    assert quick.run("attach", "fails", "--tail", "1").stdout.count("\n") == 1
    foreground = quick.run("run", "--name", "seen", "--", "true")
    assert foreground.returncode == 0
    assert "was not started with --detach" in quick.run("attach", "seen").stderr


def test_stop_now_kills_pods_of_a_foreground_run(quick: CommandLine) -> None:
    script = "trap '' TERM; echo begun; while :; do sleep 1; done"
    run = quick.start("run", "--", "sh", "-c", script)
    assert run.stdout is not None
    while "begun" not in run.stdout.readline():
        pass
    stopped = quick.run("stop", "sh", "--now")
    assert stopped.returncode == 0, stopped.stderr
    run.communicate(timeout=60)
    assert run.returncode == 128 + signal.SIGTERM
    (folder,) = (quick.data_dir / "runs").iterdir()
    assert not is_under_way(folder)


def test_runs_are_named_alike_by_all_commands(quick: CommandLine) -> None:
    for _ in range(2):
        assert quick.run("run", "--name", "twice", "--", "true").returncode == 0
    assert quick.run("run", "--name", "once", "--", "true").returncode == 0
    listed = quick.run("get", "runs,jobs").stdout
    assert listed.count("twice") == 4
    assert "ID " in listed
    assert "COMPLETIONS" in listed
    ambiguous = quick.run("delete", "run/twice")
    assert ambiguous.returncode == 1
    assert "2 runs have a Job of this name" in ambiguous.stderr
    assert quick.run("get", "jobs", "--run", "run/once").stdout.count("once") == 1
    assert "has already ended" in quick.run("suspend", "run/once").stdout
    assert "onejob stop job/once" in quick.run("suspend", "job/once").stderr
    deleted = quick.run("delete", "run/once")
    assert deleted.returncode == 0, deleted.stderr
    assert quick.run("get", "runs").stdout.count("once") == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--image", "x"), "--image cannot be combined with --resume"),
        (("--env", "A=b"), "--env cannot be combined with --resume"),
        (("-n", "other"), "--namespace cannot be combined with --resume"),
        (("--param", "a=1"), "--param cannot be combined with --resume"),
    ],
)
def test_resume_refuses_options_of_a_new_job(
    quick: CommandLine, words: tuple[str, ...], message: str
) -> None:
    done = quick.run("run", "--resume", "any", *words)
    assert done.returncode == 2
    assert message in done.stderr


def test_resume_honours_parallelism_and_retries(quick: CommandLine) -> None:
    script = "test $JOB_COMPLETION_INDEX = 0 || test -e good"
    words = ("--indexed", "--completions", "3", "--name", "wide")
    assert quick.run("run", *words, "--", "sh", "-c", script).returncode == 1
    (quick.home / "good").touch()
    done = quick.run("run", "--resume", "wide", "--parallelism", "2", "--retries", "5")
    assert done.returncode == 0, done.stdout
    path = "{.spec.parallelism} {.spec.backoffLimitPerIndex}"
    job = quick.run("get", "job", "wide", "-o", f"jsonpath={path}")
    assert job.stdout == "2 5"


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("python3 train.py", "train"),
        ("/usr/bin/python3.12 -u src/Train_Model.py --lr 1", "train-model"),
        ("./train.py", "train"),
        ("python -m http.server 80", "http-server"),
        ("python3 -c 1", "python3"),
        ("sh -c date", "sh"),
        ("bash -ec date", "bash"),
        ("bash steps/build.sh", "build"),
        ("python3", "python3"),
        ("make -j8", "make"),
        ("node app.mjs", "app"),
    ],
)
def test_job_is_named_after_its_program(words: str, name: str) -> None:
    assert name_for(words.split()) == name


def test_server_job_that_is_missing_is_not_replaced_by_an_ended_run(served: CommandLine) -> None:
    assert served.run("run", "--name", "local", "--", "echo", "kept").returncode == 0
    done = served.run("logs", "job/local")
    assert (done.returncode, done.stdout) == (1, "")
    assert "not found on the server; run " in done.stderr
    assert served.run("logs", "job/local", "--run", "local").stdout == "kept\n"
    listed = served.run("get", "runs,jobs").stdout
    assert listed.count("local") == 2
    assert served.run("create", "job", "remote", "--", "sleep", "300").returncode == 0
    assert served.run("stop", "job/remote").stdout == "job.batch/remote suspended\n"
