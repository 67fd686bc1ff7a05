"""Environment variables that a run takes from its caller, and where they are stored."""

import os
import stat
from pathlib import Path

import pytest

from onejob.cli.manifests.job_from_command import inherited
from onejob.cli.run.missed_variables import missed_variable
from tests.cli.command_line import CommandLine, job_yaml


def kept_files(onejob: CommandLine, word: str) -> list[Path]:
    """Return the files below the data dir that contain a word, except logs of Pods."""
    return [
        path
        for path in onejob.data_dir.rglob("*")
        if path.is_file() and path.suffix != ".log" and word.encode() in path.read_bytes()
    ]


def test_command_inherits_the_environment_of_its_caller(onejob: CommandLine) -> None:
    script = "import os; print('found', os.environ['DATA_ROOT'])"
    done = onejob.run("run", "--", "python3", "-c", script, DATA_ROOT="/data/secret-word")
    assert done.returncode == 0, done.stdout
    assert "found /data/secret-word" in done.stdout


def test_inherited_values_are_in_a_private_file_of_the_run_only(onejob: CommandLine) -> None:
    assert onejob.run("run", "--name", "x", "--", "true", TOKEN="secret-word").returncode == 0
    (folder,) = (onejob.data_dir / "runs").iterdir()
    (file,) = kept_files(onejob, "secret-word")
    assert file.parent == folder
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert onejob.run("delete", f"run/{folder.name}").returncode == 0
    assert not file.exists()


def test_resume_and_again_have_the_environment_of_the_first_run(onejob: CommandLine) -> None:
    script = 'echo "found <$WORD>"; [ -e may-end ]'
    first = onejob.run("run", "--name", "x", "--", "sh", "-c", script, WORD="first")
    assert first.returncode == 1
    second = onejob.run("run", "--resume", "x", WORD="second", OTHER="z")
    assert second.returncode == 1
    assert "found <first>" in second.stdout
    (onejob.home / "may-end").touch()
    third = onejob.run("run", "--resume", "x")
    assert third.returncode == 0, third.stderr
    assert "found <first>" in third.stdout
    again = onejob.run("run", "--again", "x")
    assert "found <first>" in again.stdout
    clean = onejob.run("run", "--again", "x", "--clean-env")
    assert "found <>" in clean.stdout


def test_resume_passes_the_variables_that_the_first_run_passed(onejob: CommandLine) -> None:
    script = 'echo "$(WORD) $OTHER <$KEPT>"; [ -e may-end ]'
    (onejob.home / "job.yaml").write_text(job_yaml("x", script, spec="backoffLimit: 0"))
    passing = ("--pass-env", "WORD", "--pass-env", "OTHER")
    first = onejob.run("run", *passing, "job.yaml", WORD="first", OTHER="secret-word", KEPT="no")
    assert first.returncode == 1
    assert "first secret-word <>" in first.stdout
    (file,) = kept_files(onejob, "secret-word")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    second = onejob.run("run", "--resume", "x", WORD="second")
    assert "first secret-word <>" in second.stdout
    (onejob.home / "may-end").touch()
    third = onejob.run("run", "--resume", "x", "--pass-env", "WORD", WORD="third")
    assert third.returncode == 0, third.stderr
    assert "third secret-word <>" in third.stdout
    again = onejob.run("run", "--again", "x")
    assert "third secret-word <>" in again.stdout


def test_clean_env_keeps_explicit_variables(onejob: CommandLine) -> None:
    words = ("run", "--clean-env", "--pass-env", "SHOWN", "--", "env")
    done = onejob.run(*words, TOKEN="secret-word", SHOWN="y")
    assert done.returncode == 0
    assert "SHOWN=y" in done.stdout
    assert "TOKEN" not in done.stdout
    assert kept_files(onejob, "secret-word") == []


def test_manifest_pods_get_only_passed_variables(onejob: CommandLine) -> None:
    (onejob.home / "job.yaml").write_text(job_yaml("x", "env"))
    done = onejob.run("run", "job.yaml", TOKEN="secret-word", AWS_REGION="eu", AWS_KEY="k")
    assert "secret-word" not in done.stdout
    assert "AWS_" not in done.stdout
    some = onejob.run("run", "--pass-env", "AWS_*", "job.yaml", TOKEN="t", AWS_A="eu", AWS_B="k")
    assert "AWS_A=eu" in some.stdout
    assert "AWS_B=k" in some.stdout
    assert "TOKEN" not in some.stdout
    refused = onejob.run("run", "--clean-env", "job.yaml")
    assert (refused.returncode, refused.stderr) == (
        2,
        "error: --clean-env requires a command (specify it after --)\n",
    )


def test_own_variables_win_over_inherited_ones(onejob: CommandLine) -> None:
    words = ("run", "--indexed", "-e", "A=own", "--", "sh", "-c", "echo $A $JOB_COMPLETION_INDEX")
    done = onejob.run(*words, A="inherited", JOB_COMPLETION_INDEX="7")
    assert "own 0" in done.stdout


def test_command_substitution_is_not_taken_for_an_inherited_variable(onejob: CommandLine) -> None:
    script = "version() { echo of the shell; }; echo it is $(version)"
    done = onejob.run("run", "--", "sh", "-c", script, version="of the caller")
    assert "it is of the shell" in done.stdout


def test_variables_that_are_no_text_are_not_inherited() -> None:
    assert inherited({"A": "b", "C": os.fsdecode(b"\xff"), "\udcff": "d"}) == {"A": "b"}


def test_failure_for_want_of_a_variable_names_the_option_that_passes_it(
    onejob: CommandLine,
) -> None:
    (onejob.home / "job.yaml").write_text(
        job_yaml("x", "set -u; echo $DATA_ROOT", spec="backoffLimit: 0")
    )
    done = onejob.run("run", "job.yaml", DATA_ROOT="/data")
    assert done.returncode == 1
    hint = (
        "DATA_ROOT is set in this environment, but not in Pods (pass it with --pass-env DATA_ROOT)"
    )
    assert hint in done.stdout
    unset = onejob.run("run", "job.yaml")
    assert "--pass-env" not in unset.stdout


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("KeyError: 'DATA_ROOT'", "DATA_ROOT"),
        ('x.rb:1:in `fetch\': key not found: "DATA_ROOT" (KeyError)', "DATA_ROOT"),
        ("bash: line 1: DATA_ROOT: unbound variable", "DATA_ROOT"),
        ("sh: 1: DATA_ROOT: parameter not set", "DATA_ROOT"),
        ("KeyError: 'OTHER'", ""),
        ("DATA_ROOT is nice", ""),
    ],
)
def test_missed_variable_is_read_from_the_last_lines(line: str, expected: str) -> None:
    assert missed_variable(["before", line], {"DATA_ROOT"}) == expected
