"""`--pid-namespace`, `--host-fs ro` and `--writable` on the command line."""

import os

import pytest

from tests.cli.command_line import CommandLine
from tests.node.support import needs_pid_namespaces


@needs_pid_namespaces
def test_a_run_can_be_kept_from_changing_the_folder_it_starts_in(onejob: CommandLine) -> None:
    done = onejob.run("run", "--host-fs", "ro", "--", "sh", "-c", "echo x > made || echo refused")
    assert done.returncode == 0, done.stderr
    assert "refused" in done.stdout
    assert not (onejob.home / "made").exists()


@needs_pid_namespaces
def test_a_folder_can_be_excepted(onejob: CommandLine) -> None:
    (onejob.home / "out").mkdir()
    options = ["--host-fs", "ro", "--writable", "out"]
    done = onejob.run("run", *options, "--", "sh", "-c", "echo x > out/made")
    assert done.returncode == 0, done.stderr
    assert os.listdir(onejob.home / "out") == ["made"]


@needs_pid_namespaces
def test_a_run_has_a_pid_namespace_only_if_asked_for(onejob: CommandLine) -> None:
    ours = os.readlink("/proc/self/ns/pid")
    command = ["--", "readlink", "/proc/self/ns/pid"]
    assert ours in onejob.run("run", *command).stdout
    done = onejob.run("run", "--pid-namespace", "on", *command)
    assert done.returncode == 0, done.stderr
    assert "pid:[" in done.stdout
    assert ours not in done.stdout


@pytest.mark.parametrize("command", ["run", "serve"])
@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--writable", "."], "error: --writable requires --host-fs ro"),
        (
            ["--host-fs", "ro", "--writable", "absent"],
            "error: --writable absent: no such file or directory",
        ),
        (
            ["--host-fs", "ro", "--pid-namespace", "off"],
            "error: --host-fs ro requires PID namespaces",
        ),
    ],
)
def test_conflicting_options_fail_with_one_line(
    onejob: CommandLine, command: str, options: list[str], line: str
) -> None:
    done = onejob.run(command, *options, *(["--", "true"] if command == "run" else []))
    assert done.returncode == 2
    assert done.stderr.startswith(line)
    assert "Traceback" not in done.stderr
