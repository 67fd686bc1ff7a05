"""Errors of commands: one line and an exit code."""

import errno
import io
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from onejob.cli import main
from onejob.cli.command_suggestions import HERE, OF_KUBECTL
from onejob.cli.errors import CommandError
from onejob.wire.errors import not_found


def raising(error: BaseException) -> Callable[[], None]:
    def callback() -> None:
        raise error

    return callback


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], int]:
    """Run a command that fails with the given error; return the exit code."""

    def run(error: BaseException) -> int:
        command = click.Command("get", callback=raising(error))
        monkeypatch.setattr(main.LazyGroup, "get_command", lambda *_: command)
        return main.run_command(["get"])

    return run


@pytest.mark.parametrize(
    ("error", "exit_code", "line"),
    [
        (CommandError("no", "do this"), 2, "error: no (do this)\n"),
        (CommandError("no", exit_code=1), 1, "error: no\n"),
        (not_found("jobs.batch", "x"), 1, 'error: jobs.batch "x" not found\n'),
        (FileNotFoundError(2, "No such file", "x.yaml"), 2, "error: x.yaml: No such file\n"),
        (KeyboardInterrupt(), 130, "\n"),
        (
            ZeroDivisionError("a\nb"),
            1,
            "error: internal error: ZeroDivisionError: a b (set ONEJOB_DEBUG=1 to see the "
            "traceback, and please report it)\n",
        ),
    ],
)
def test_an_error_is_one_line(
    failing: Callable[[BaseException], int],
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    exit_code: int,
    line: str,
) -> None:
    assert failing(error) == exit_code
    assert capsys.readouterr().err == line


def test_a_debugger_may_see_where(
    failing: Callable[[BaseException], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONEJOB_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        failing(ZeroDivisionError())


def test_other_systems_than_linux_are_rejected_with_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    assert main.run_command(["run"]) == 2
    assert capsys.readouterr().err == (
        "error: onejob supports only Linux (use a Linux machine or container)\n"
    )


class GoneTerminal(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(errno.EIO, "Input/output error")


@pytest.mark.parametrize("number", [errno.EPIPE, errno.EIO])
def test_closed_stdout_fails_silently(
    failing: Callable[[BaseException], int], monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    left = []
    monkeypatch.setattr("onejob.cli.display.terminal.silence_output", lambda: left.append(True))
    monkeypatch.setattr("sys.stdout", GoneTerminal())
    monkeypatch.setattr("sys.stderr", GoneTerminal())
    assert failing(OSError(number, "no reader")) == 1
    assert left == [True]


def test_disk_error_is_reported(
    failing: Callable[[BaseException], int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert failing(OSError(errno.EIO, "Input/output error")) == 2
    assert failing(OSError(errno.EIO, "Input/output error", "/some/file")) == 2
    assert capsys.readouterr().err == (
        "error: Input/output error\nerror: /some/file: Input/output error\n"
    )


@pytest.mark.parametrize("words", [[], ["help"], ["--help"]])
def test_looking_around_is_no_error(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run_command(words) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert shown.out.startswith("Usage: onejob [OPTIONS] COMMAND")
    assert "Examples:" in shown.out


def test_help_is_given_for_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run_command(["help", "cron", "next"]) == 0
    assert capsys.readouterr().out.startswith("Usage: onejob cron next [OPTIONS] SCHEDULE")
    assert main.run_command(["help", "fly"]) == 2
    assert capsys.readouterr().err == "error: unknown command 'fly' (see onejob --help)\n"
    assert main.run_command(["help", "cron", "nxt", "more"]) == 2
    assert capsys.readouterr().err == (
        "error: unknown command 'cron nxt' (did you mean `onejob cron next`?)\n"
    )


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("ps", "did you mean `onejob get jobs`?"),
        ("stop", "did you mean `onejob suspend`?"),
        ("status", "did you mean `onejob why`?"),
        ("exec", "use kubectl, which works with onejob serve"),
    ],
)
def test_words_of_other_programs_are_understood(
    word: str,
    hint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert main.run_command([word, "job/pi"]) == 2
    assert capsys.readouterr().err == f"error: unknown command {word!r} ({hint})\n"
    if "kubectl" in hint:
        (tmp_path / "onejob").mkdir()
        kubeconfig = tmp_path / "onejob" / "kubeconfig"
        kubeconfig.touch()
        assert main.run_command([word, "job/pi"]) == 2
        hint = f"use kubectl --kubeconfig {kubeconfig} {word}"
        assert capsys.readouterr().err == f"error: unknown command {word!r} ({hint})\n"


def test_each_word_leads_to_a_command_that_there_is() -> None:
    assert {meant.split()[0] for meant in HERE.values()} <= main.COMMANDS.keys()
    assert not (HERE.keys() | OF_KUBECTL) & main.COMMANDS.keys()


def test_a_missing_value_leads_to_the_help_of_its_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main.run_command(["get", "pods", "--sort-by"]) == 2
    assert capsys.readouterr().err == (
        "error: Option '--sort-by' requires an argument (see onejob get --help)\n"
    )


def _every_command() -> Iterator[list[str]]:
    context = click.Context(main.cli)
    yield []
    for name in main.COMMANDS:
        yield [name]
        command = main.cli.get_command(context, name)
        if isinstance(command, click.Group):
            yield from ([name, part] for part in command.commands)


@pytest.mark.parametrize("words", list(_every_command()), ids=" ".join)
def test_help_fits_a_terminal_of_eighty_columns(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main.run_command([*words, "--help"]) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if len(line) > 80] == []


def test_the_version_is_an_option_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run_command(["--version"]) == 0
    assert capsys.readouterr().out.startswith("onejob v")
