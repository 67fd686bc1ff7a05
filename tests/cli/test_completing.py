"""Shell completion, requested as the scripts of `onejob completion` do."""

import pytest

from tests.cli.command_line import CommandLine, job_yaml


@pytest.fixture(scope="module")
def filled(served: CommandLine) -> CommandLine:
    for name in ("alpha", "beta"):
        (served.home / f"{name}.yaml").write_text(job_yaml(name, "true", spec="suspend: true"))
        assert served.run("create", "-f", f"{name}.yaml").returncode == 0
    return served


def offered(command_line: CommandLine, *words: str, shell: str = "bash") -> list[str]:
    """Return the completions of the last word."""
    # A process of its own: click reads these variables when it starts.
    done = CommandLine.run(
        command_line,
        "",
        _ONEJOB_COMPLETE=f"{shell}_complete",
        COMP_WORDS=" ".join(("onejob", *words)),
        COMP_CWORD=words[-1] if shell == "fish" else str(len(words)),
    )
    assert (done.returncode, done.stderr) == (0, "")
    return list(filter(None, done.stdout.splitlines()))


def test_objects_are_offered_with_their_kind(filled: CommandLine) -> None:
    assert offered(filled, "logs", "job/") == ["plain,job/alpha", "plain,job/beta"]
    assert offered(filled, "why", "job/b") == ["plain,job/beta"]
    assert "plain,job/alpha" in offered(filled, "describe", "j")


def test_kinds_are_offered_and_then_their_names(filled: CommandLine) -> None:
    assert offered(filled, "get", "cron") == ["plain,cronjobs", "plain,cronworkflows"]
    assert offered(filled, "get", "jobs", "al") == ["plain,alpha"]
    assert offered(filled, "delete", "job/al") == ["plain,job/alpha"]


@pytest.mark.parametrize(
    "words", [("run", "al"), ("apply", "-f", "al"), ("validate", "al"), ("run", "--params", "al")]
)
def test_files_are_left_to_the_shell(filled: CommandLine, words: tuple[str, ...]) -> None:
    assert offered(filled, *words) == ["file,al"]


@pytest.mark.parametrize(("shell", "line"), [("zsh", "plain"), ("fish", "plain,job/beta")])
def test_other_shells_are_answered_in_their_way(filled: CommandLine, shell: str, line: str) -> None:
    lines = offered(filled, "logs", "job/b", shell=shell)
    assert lines[0] == line
    assert "job/beta" in "".join(lines)


def test_completion_without_server_is_empty_and_silent(onejob: CommandLine) -> None:
    assert offered(onejob, "logs", "job/") == []
    assert offered(onejob, "logs", "nonsense/") == []
