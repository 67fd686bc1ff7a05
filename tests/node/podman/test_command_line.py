"""`--runtime podman` on the command line."""

import shlex
import time
from pathlib import Path

import pytest

from tests.cli.command_line import CommandLine
from tests.node.podman.support import ENGINE, IMAGE, NEEDS_PODMAN, OPTIONS, engine

JOB = f"""
apiVersion: batch/v1
kind: Job
metadata:
  name: greet
spec:
  completions: 2
  parallelism: 2
  completionMode: Indexed
  template:
    spec:
      restartPolicy: Never
      containers:
        - name: c
          image: {IMAGE}
          args: ["hello from", "$(JOB_COMPLETION_INDEX)"]
"""


def test_an_engine_that_is_not_installed_is_named_before_anything_is_started(
    tmp_path: Path,
) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    words = ("run", "--runtime", "podman", "--engine", "no-such-engine", "job.yaml")
    done = CommandLine(tmp_path).run(*words)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: no-such-engine is not installed: apt install no-such-engine")
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("command", [("run", "job.yaml"), ("serve", "--listen", "127.0.0.1:0")])
def test_an_engine_that_does_not_work_is_quoted(tmp_path: Path, command: tuple[str, ...]) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho 'Error: out of order' >&2\nexit 125\n")
    broken.chmod(0o755)
    verb, *rest = command
    done = CommandLine(tmp_path).run(verb, "--runtime=podman", f"--engine={broken}", *rest)
    assert done.returncode == 2
    assert f"error: {broken} does not work: out of order\n" in done.stderr


class TestWithAnEngine:
    pytestmark = NEEDS_PODMAN

    def test_a_job_runs_to_its_end_and_leaves_its_logs_but_no_container(self, place: Path) -> None:
        (place / "job.yaml").write_text(JOB)
        onejob = CommandLine(place)
        options = [f"--engine-option={option}" for option in OPTIONS]
        chosen = f"--engine={shlex.join(ENGINE)}"
        done = onejob.run("run", "--runtime=podman", chosen, *options, "--plain", "job.yaml")
        assert done.returncode == 0, done.stdout + done.stderr
        logs = onejob.run("logs", "job/greet").stdout
        assert "hello from 0\n" in logs
        assert "hello from 1\n" in logs
        assert str(place) not in engine("ps", "--all", "--format", "{{.Labels}}")

    def test_resume_of_killed_run_repeats_only_unsuccessful_indexes(self, place: Path) -> None:
        # As pid 1 of its container it ignores SIGTERM unless it handles it.
        stops = "[ $JOB_COMPLETION_INDEX = 0 ] || trap 'exit 143' TERM"
        script = f"{stops}; echo begun; sleep 5 & wait; echo ended"
        words = f'command: [sh, -c, "{script}"]'
        manifest = JOB.replace('args: ["hello from", "$(JOB_COMPLETION_INDEX)"]', words)
        (place / "job.yaml").write_text(manifest)
        onejob = CommandLine(place)
        options = [f"--engine-option={option}" for option in OPTIONS]
        node = ["--runtime=podman", f"--engine={shlex.join(ENGINE)}", *options]
        run = onejob.start("run", *node, "--plain", "job.yaml")
        give_up = time.monotonic() + 60
        while onejob.run("logs", "job/greet").stdout.count("begun") < 2:
            assert time.monotonic() < give_up
        run.kill()
        run.communicate()
        done = onejob.run("run", *node, "--plain", "--resume", "greet", timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "started (1 index)" in done.stdout
        results = onejob.run("results", "greet").stdout.splitlines()
        assert [line.split()[1] for line in results[1:]] == ["Succeeded", "Succeeded"]
