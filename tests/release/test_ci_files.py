"""The GitHub Action, the workflows, and the version in all its places."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from onejob import __version__
from tests.cli.command_line import EXAMPLES, CommandLine
from tests.release.support import ROOT

ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.fixture
def runner(onejob: CommandLine) -> CommandLine:
    """Return a command line whose PATH has this onejob, like a runner after the first step."""
    (onejob.home / "bin").mkdir()
    script = f'#!/bin/sh\nexec {sys.executable} -m onejob "$@"\n'
    (onejob.home / "bin" / "onejob").write_text(script)
    (onejob.home / "bin" / "onejob").chmod(0o755)
    onejob.environment["PATH"] = f"{onejob.home / 'bin'}:{onejob.environment['PATH']}"
    onejob.environment["RUNNER_TEMP"] = str(onejob.home)
    onejob.environment["GITHUB_PATH"] = str(onejob.home / "path")
    return onejob


def step(runner: CommandLine, number: int, **inputs: str) -> subprocess.CompletedProcess[str]:
    """Run a step of the action as GitHub does: bash with these flags, expressions in `env`."""
    wanted = ACTION["runs"]["steps"][number]
    values = {name: spec.get("default", "") for name, spec in ACTION["inputs"].items()} | inputs
    context = {f"inputs.{name.replace('_', '-')}": text for name, text in values.items()}
    context["github.action_path"] = str(ROOT)
    environment = {
        name: re.sub(r"\$\{\{ (\S+) \}\}", lambda match: context[match[1]], text)
        for name, text in wanted["env"].items()
    }
    assert "${{" not in wanted["run"]
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", wanted["run"]],
        env={**runner.environment, **environment},
        cwd=runner.home,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_action_runs_manifests_and_writes_a_report(runner: CommandLine) -> None:
    done = step(
        runner, 1,
        manifests=f"{EXAMPLES / 'hello.yaml'}\n{EXAMPLES / 'config.yaml'}\n",
        junit="report.xml",
        options="--ephemeral --quiet",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (runner.home / "report.xml").read_text().count("<testsuite ") == 2


def test_action_fails_with_a_failed_job(runner: CommandLine) -> None:
    done = step(runner, 1, manifests=str(EXAMPLES / "deadline.yaml"))
    assert done.returncode == 1
    assert "DeadlineExceeded" in done.stdout


def test_action_starts_nothing_if_a_manifest_is_invalid(runner: CommandLine) -> None:
    (runner.home / "job.yaml").write_text("{apiVersion: batch/v1, kind: Job, metadata: {}}")
    done = step(runner, 1, manifests=f"job.yaml {EXAMPLES / 'hello.yaml'}")
    assert done.returncode == 2
    assert "Hello" not in done.stdout


def test_inputs_of_the_action_are_data(runner: CommandLine) -> None:
    step(runner, 1, manifests="$(touch made) `touch made`; touch made", options="; touch made")
    assert not (runner.home / "made").exists()


@pytest.mark.nightly
def test_action_installs_onejob(runner: CommandLine) -> None:
    done = step(runner, 0)
    assert done.returncode == 0, done.stderr
    folder = Path((runner.home / "path").read_text().strip())
    shown = subprocess.run(
        [folder / "onejob", "--version"], capture_output=True, text=True, check=True
    )
    assert shown.stdout == f"onejob v{__version__}\n"


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflow_runs_only_targets_of_make(path: Path) -> None:
    workflow: dict[str, Any] = yaml.safe_load(path.read_text())
    steps = [one for job in workflow["jobs"].values() for one in job["steps"]]
    commands = [one["run"] for one in steps if "run" in one]
    assert commands
    for command in commands:
        make, *targets = command.split()
        assert make == "make"
        assert set(targets) <= TARGETS
    assert workflow["permissions"] == {"contents": "read"}


def test_version_is_the_same_everywhere_and_in_the_changelog() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == __version__
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == "Unreleased"
    if len(headings) > 1:
        assert re.fullmatch(rf"{re.escape(__version__)} - \d{{4}}-\d\d-\d\d", headings[1])
