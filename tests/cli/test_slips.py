"""Common mistakes of newcomers: the error suggests the intended command."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command_line import CommandLine, QuickCommandLine


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    """Return the command line of a user without a server, with a run of a failed Job."""
    onejob = QuickCommandLine(tmp_path_factory.mktemp("home"))
    done = onejob.run("run", "--name", "slip", "--", "sh", "-c", "echo hello; exit 3")
    assert done.returncode == 1, done.stderr
    return onejob


def _script(home: Path) -> None:
    (home / "train.py").write_text("#!/usr/bin/env python3\nprint('hi')\n")
    (home / "train.py").chmod(0o755)


def test_commands_without_any_state_print_hints(onejob: CommandLine) -> None:
    done = onejob.run("get", "jobs")
    assert (done.returncode, done.stdout, done.stderr) == (
        0,
        "",
        "No resources found (start a Job with onejob run, or a server with onejob serve).\n",
    )


def test_a_command_without_dashes(ran: CommandLine) -> None:
    _script(ran.home)
    (ran.home / "bare.py").write_text("print('hi')\n")
    for words, line in (
        (
            ("echo", "hello you"),
            "echo: no such file (to run it: onejob run -- echo 'hello you')",
        ),
        (
            ("./train.py",),
            "./train.py: is a program, not a manifest (to run it: onejob run -- ./train.py)",
        ),
        (
            ("train.py", "3"),
            "train.py: is a program, not a manifest (to run it: onejob run -- ./train.py 3)",
        ),
        (
            ("bare.py",),
            "bare.py: is a program, not a manifest (to run it: onejob run -- python3 bare.py)",
        ),
        (
            ("ls", "-l", "--all"),
            "ls: no such file (to run it: onejob run -- ls -l --all)",
        ),
        (("job.yaml", "--zzqq"), "No such option '--zzqq' (see onejob run --help)"),
        (("no-such-program-here.yaml",), "no-such-program-here.yaml: No such file or directory"),
    ):
        done = ran.run("run", *words)
        assert (done.returncode, done.stderr) == (2, f"error: {line}\n")


def test_logs_of_a_job_by_its_name_alone(ran: CommandLine) -> None:
    done = ran.run("logs", "slip")
    assert (done.returncode, done.stdout) == (0, "hello\n")
    assert done.stderr == "note: pod/slip does not exist; showing job.batch/slip\n"
    assert ran.run("logs", "pod/slip").returncode == 1
    absent = ran.run("logs", "absent")
    assert "pod/absent not found: no server, and no run of the last 7 days" in absent.stderr


def test_a_misspelt_name_of_a_kept_job(ran: CommandLine) -> None:
    for words in (("why", "job/silp"), ("logs", "job/slpi"), ("results", "slipp")):
        done = ran.run(*words)
        assert done.returncode == 1
        assert done.stderr.endswith(
            "no run of the last 7 days contains it (did you mean job/slip?)\n"
        )


def test_a_misspelt_name_on_a_server(served: QuickCommandLine) -> None:
    assert served.run("create", "namespace", "slips").returncode == 0
    assert served.run("create", "job", "elsewhere", "-n", "slips", "--", "true").returncode == 0
    schedule = ("--schedule", "@yearly", "--", "true")
    assert served.run("create", "cronjob", "nightly", *schedule).returncode == 0
    for words, line in (
        (
            ("cronjob/nigthly",),
            'cronjobs.batch "nigthly" not found (did you mean cronjob/nightly?)',
        ),
        (
            ("job/elsewhere",),
            'jobs.batch "elsewhere" not found (it exists in namespace slips: use -n slips)',
        ),
        (("job/elsewhre", "-n", "slips"), "(did you mean job/elsewhere?)"),
        (("job/nightly",), 'jobs.batch "nightly" not found (did you mean cronjob/nightly?)'),
        (("pod/nightly",), 'pods "nightly" not found (did you mean cronjob/nightly?)'),
        (("job/nothing-like-it",), 'jobs.batch "nothing-like-it" not found\n'),
    ):
        for command in ("get", "describe", "delete"):
            done = served.run(command, *words)
            assert done.returncode == 1
            assert line in done.stderr, command
    done = served.run("create", "job", "lost", "-n", "slip", "--", "true")
    assert done.stderr == (
        'error: namespaces "slip" not found (create it with onejob create namespace slip)\n'
    )


def test_a_cronjob_by_its_name_alone(served: QuickCommandLine) -> None:
    schedule = ("--schedule", "@yearly", "--", "true")
    assert served.run("create", "cronjob", "weekly", *schedule).returncode == 0
    done = served.run("create", "job", "now", "--from=weekly")
    assert (done.returncode, done.stdout) == (0, "job.batch/now created\n"), done.stderr
    done = served.run("create", "job", "then", "--from=job/weekly")
    assert done.stderr == "error: --from job/weekly: expected cronjob/NAME\n"
    done = served.run("suspend", "weekly")
    assert (done.returncode, done.stderr) == (
        1,
        'error: jobs.batch "weekly" not found (did you mean cronjob/weekly?)\n',
    )


def test_a_misspelt_field_is_shown_in_the_file_that_is_sent(served: QuickCommandLine) -> None:
    (served.home / "typo.yaml").write_text(
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: typo}\nspec:\n  paralelism: 2\n"
        "  completions: two\n"
    )
    for command in ("apply", "create"):
        done = served.run(command, "-f", "typo.yaml")
        assert (done.returncode, done.stderr.splitlines()) == (
            1,
            [
                "error: typo.yaml: document 1, line 5: spec.paralelism: unknown field, did you "
                "mean parallelism?",
                "error: typo.yaml: document 1, line 6: spec.completions: expected a whole number, "
                'found "two"',
            ],
        )


def test_a_finished_job_is_not_suspended(served: QuickCommandLine) -> None:
    assert served.run("create", "job", "over", "--", "true").returncode == 0
    assert served.run("wait", "over").returncode == 0
    done = served.run("suspend", "job/over")
    assert (done.returncode, done.stderr) == (
        2,
        "error: job.batch/over has finished (run it again with onejob rerun)\n",
    )


def test_a_deployment_in_place_of_a_job(ran: CommandLine) -> None:
    (ran.home / "web.yaml").write_text(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {}\n"
    )
    done = ran.run("run", "web.yaml")
    assert (done.returncode, done.stderr) == (
        2,
        "error: web.yaml: no Job to run; kind Deployment has no effect in a run (onejob runs "
        "Jobs: kind: Job, apiVersion: batch/v1)\n",
    )


def test_command_errors_name_no_document(ran: CommandLine) -> None:
    done = ran.run("run", "--name", "My_Job", "--", "true")
    assert done.returncode == 2
    assert done.stderr.startswith('error: metadata.name: Invalid value: "My_Job": a lowercase')


def test_validate_warns_as_a_server_does(ran: CommandLine) -> None:
    (ran.home / "quiet.yaml").write_text(
        "apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {name: a}\n"
        "spec: {maxReplicas: 2, scaleTargetRef: {kind: Deployment, name: web}}\n"
    )
    done = ran.run("validate", "quiet.yaml")
    assert (done.returncode, done.stdout) == (0, "1 object checked, no problems found\n")
    assert done.stderr.startswith(
        "warning: quiet.yaml: document 1: HorizontalPodAutoscaler is stored, but has no effect here"
    )
    assert ran.run("validate", "--for", "kubernetes", "quiet.yaml").stderr == ""


def test_arguments_are_validated_before_connecting(ran: CommandLine) -> None:
    for words, line in (
        (("delete",), "no object specified (for example jobs, or job/NAME)"),
        (("why",), "no object specified (for example job/NAME)"),
        (("cron", "run"), "no object specified (for example cronjob/NAME)"),
        (("delete", "jbo", "x"), "unknown kind 'jbo' (did you mean job?)"),
        (
            ("create", "job"),
            "specify a kind and a name (for example: onejob create job pi -- date)",
        ),
        (
            ("create", "jb", "x"),
            "onejob create does not support jb (supported are job, cronjob and namespace; for "
            "other kinds use -f)",
        ),
        (
            ("create", "cronjob", "x", "--", "true"),
            "a CronJob requires --schedule (for example: --schedule '0 3 * * *')",
        ),
        (("apply",), "which files? (for example: onejob apply -f cron.yaml)"),
        (("apply", "no.yaml"), "no.yaml: No such file or directory"),
    ):
        done = ran.run(*words)
        assert (done.returncode, done.stderr) == (2, f"error: {line}\n")


def test_a_job_by_its_name_or_as_kubectl_has_it(ran: CommandLine) -> None:
    for words in (("slip",), ("job", "slip"), ("jobs", "slip"), ("job/slip",)):
        done = ran.run("wait", *words)
        assert (done.returncode, done.stderr) == (1, "")
        assert done.stdout.startswith("job.batch/slip Failed: ")
        assert ran.run("why", *words).stdout.startswith("job/slip is Failed, ")


def test_stored_only_kinds_are_not_suggested(ran: CommandLine) -> None:
    done = ran.run("get", "widgets")
    assert done.stderr.startswith(
        "error: unknown kind 'widgets' (supported kinds include namespaces, pods,"
    )
    assert "cronjobs, jobs," in done.stderr
    assert "flowschemas" not in done.stderr


def test_rerun_names_kept_run_of_missing_job(ran: CommandLine) -> None:
    done = ran.run("rerun", "job/slip")
    assert (done.returncode, done.stderr) == (
        2,
        "error: no server: job.batch/slip is in a kept run (onejob run --resume slip runs what "
        "did not succeed)\n",
    )
    assert "start one with onejob serve" in ran.run("rerun", "job/absent").stderr


def test_a_manifest_with_tabs(ran: CommandLine) -> None:
    (ran.home / "tab.yaml").write_text("kind: Job\nspec:\n\ttemplate: {}\n")
    done = ran.run("run", "tab.yaml")
    assert done.returncode == 2
    assert "line 3: invalid YAML: " in done.stderr
    assert done.stderr.endswith("(indent with spaces: YAML does not allow tabs)\n")


def _in_shell(ran: CommandLine, script: str) -> tuple[int, str, str]:
    """Run a shell script in which `"$0" "$@"` is onejob."""
    python, *words = ran.arguments()
    done = subprocess.run(
        ["bash", "-c", script, python, *words],
        capture_output=True, check=False, timeout=60, env=ran.environment, cwd=ran.home,
    )  # fmt: skip
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_closed_streams(ran: CommandLine) -> None:
    assert _in_shell(ran, '"$0" "$@" runs >&-') == (0, "", "")
    code, output, _ = _in_shell(ran, '"$0" "$@" run -q --ephemeral -o raw -- echo hi <&- 2>&-')
    assert (code, output) == (0, "hi\n")
    # No later opened file has the number of a standard stream.
    code, output, errors = _in_shell(
        ran, '"$0" "$@" run -q --ephemeral -o raw -- readlink /proc/self/fd/0 <&- 2>&-'
    )
    assert (code, output, errors) == (0, "/dev/null\n", "")


def test_invalid_utf_8_is_rejected_with_one_line(ran: CommandLine) -> None:
    for script, line in (
        ('"$0" "$@" run -- echo $\'a\\xff\'', r"'a\udcff' is not valid UTF-8 (objects can contain"),
        (
            'export A=$\'\\xff\'; "$0" "$@" run --pass-env A -- true',
            "the variable A, which is passed to Pods, is not valid UTF-8: '\\udcff'",
        ),
        (
            "mkdir $'\\xff' && cd $'\\xff' && \"$0\" \"$@\" run -- true",
            "the name of the current directory, '\\udcff', is not valid UTF-8 (change to "
            "another directory)",
        ),
    ):
        code, _, errors = _in_shell(ran, script)
        assert (code, errors.startswith(f"error: {line}")) == (2, True), errors


def test_a_folder_that_is_gone(ran: CommandLine) -> None:
    code, _, errors = _in_shell(ran, 'mkdir x && cd x && rmdir ../x && "$0" "$@" run -- true')
    assert (code, errors) == (
        2,
        "error: the current directory no longer exists (change to another directory)\n",
    )


def test_unencodable_output_does_not_fail(ran: CommandLine) -> None:
    code, output, _ = _in_shell(ran, 'PYTHONIOENCODING=ascii "$0" "$@" run --ephemeral -- echo ✓')
    assert code == 0
    assert r"] \u2713" in output


#: Presses Ctrl-C while the command imports its first module.
_EARLY = """
import os, runpy, signal, sys
class Finder:
    def find_spec(self, name, path, target=None):
        if name == "click":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
runpy.run_module("onejob", run_name="__main__")
"""


def test_ctrl_c_before_anything_has_begun_prints_nothing() -> None:
    command = [sys.executable, "-c", _EARLY]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")
    ignored = subprocess.run(
        ["sh", "-c", 'trap "" INT; exec "$0" -c "$1" --version', sys.executable, _EARLY],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ignored.returncode == 0, ignored.stderr
