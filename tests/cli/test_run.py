"""`onejob run` as a whole: real processes, real exit codes, real signals."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command_line import CommandLine, QuickCommandLine, job_yaml


def write(onejob: CommandLine, name: str, text: str) -> str:
    (onejob.home / name).write_text(text)
    return name


def await_line(process: subprocess.Popen[str], needle: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if needle in line:
            return
    pytest.fail(f"the command ended without saying {needle!r}")


def running(word: str) -> bool:
    """Return whether some process was started with that word."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if word.encode() in (folder / "cmdline").read_bytes().split(b"\0"):
                return True
        except OSError:
            continue
    return False


def gone_soon(word: str) -> bool:
    for _ in range(1200):
        if not running(word):
            return True
        time.sleep(0.05)
    return False


def test_a_job_runs_to_the_end_with_its_logs_and_a_summary(onejob: CommandLine) -> None:
    file = write(onejob, "job.yaml", job_yaml("hello", "echo Hello from $HOSTNAME"))
    done = onejob.run("run", file)
    assert done.returncode == 0, done.stderr
    assert "job/hello: started (1 completion)" in done.stdout
    assert "] Hello from hello-" in done.stdout
    assert "job/hello: Complete in " in done.stdout
    assert "JOB     STATUS     PODS   RETRIES   WALL" in done.stdout
    assert "\x1b" not in done.stdout


def test_a_failed_job_exits_with_one_and_shows_the_last_words(onejob: CommandLine) -> None:
    script = "echo getting there; echo no space left >&2; exit 3"
    file = write(onejob, "job.yaml", job_yaml("bad", script, spec="backoffLimit: 0"))
    done = onejob.run("run", file)
    assert done.returncode == 1
    assert "failed: exit code 3" in done.stdout
    assert "job/bad: Failed in" in done.stdout
    assert "BackoffLimitExceeded" in done.stdout
    assert "    | no space left\n" in done.stdout
    assert "onejob why job/bad" in done.stdout


def test_the_exit_code_of_the_container_on_request(onejob: CommandLine) -> None:
    done = onejob.run("run", "--exit-code", "--retries", "0", "--", "sh", "-c", "exit 7")
    assert done.returncode == 7
    many = onejob.run("run", "--exit-code", "--completions", "2", "--", "true")
    assert many.returncode == 2
    assert many.stderr == "error: --exit-code requires a single Job with a single Pod\n"


def test_a_command_without_yaml_gets_indexes_and_variables(onejob: CommandLine) -> None:
    done = onejob.run(
        *("run", "--name", "each", "--indexed", "--completions", "3", "--parallelism", "3"),
        *("--env", "WORD=hi", "--", "sh", "-c", "echo $WORD $JOB_COMPLETION_INDEX"),
    )
    assert done.returncode == 0, done.stderr
    assert {f"hi {index}" for index in range(3)} <= {
        line.partition("] ")[2] for line in done.stdout.splitlines()
    }


def test_a_run_starts_where_the_caller_is(onejob: CommandLine) -> None:
    done = onejob.run("run", "--", "pwd")
    assert str(onejob.home) in done.stdout


def test_dry_run_prints_the_yaml_and_starts_nothing(onejob: CommandLine) -> None:
    done = onejob.run(
        "run", "--dry-run=client", "-o", "yaml", "--retries", "2", "--", "make", "-j2"
    )
    assert done.returncode == 0
    assert "backoffLimit: 2\n" in done.stdout
    assert not onejob.data_dir.exists()
    again = onejob.run("run", "--dry-run=client", "-", stdin=done.stdout)
    assert again.stdout == "job/make would be created (dry run)\n"


def test_dry_run_validates_and_names_skipped_manifests(onejob: CommandLine) -> None:
    job = job_yaml("x", "true")
    template = "{spec: {restartPolicy: Never, containers: [{name: c, image: busybox}]}}"
    cron = (
        "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: tick}\nspec:\n"
        f"  schedule: '0 3 * * *'\n  jobTemplate: {{spec: {{template: {template}}}}}\n"
    )
    (onejob.home / "ci").mkdir()
    write(onejob, "ci/cron.yaml", cron)
    only = onejob.run("run", "--dry-run=client", "ci")
    assert (only.returncode, only.stdout) == (0, ""), only.stderr
    assert only.stderr.startswith("note: cronjob/tick is checked but not run: schedules require")
    write(onejob, "ci/job.yaml", job)
    assert onejob.run("run", "--dry-run=client", "ci").stdout == (
        "job/x would be created (dry run)\n"
    )
    ran = onejob.run("run", "ci")
    assert ran.returncode == 0
    assert "note: cronjob/tick is checked but not run" in ran.stdout
    write(onejob, "ci/cron.yaml", cron.replace("0 3", "0 33"))
    for words in (["--dry-run=client", "ci"], ["ci"]):
        done = onejob.run("run", *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("error: ci/cron.yaml: document 1, line 5: spec.schedule: ")


def test_bad_input_is_one_line_exit_two_and_nothing_started(onejob: CommandLine) -> None:
    text = job_yaml("x", "true").replace("containers", "contaners")
    file = write(onejob, "job.yaml", text)
    done = onejob.run("run", file)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == (
        "error: job.yaml: document 1, line 8: spec.template.spec.contaners: unknown field, "
        "did you mean containers?\n"
    )
    assert not onejob.data_dir.exists()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["run"], "error: nothing to run (specify a file, or -- and a command)"),
        (["run", "--"], "error: missing command after --"),
        (["run", "a.yaml", "--", "true"], "error: specify either files or a command"),
        (["run", "nowhere.yaml"], "error: nowhere.yaml: No such file or directory"),
        (["run", "--name", "x", "a.yaml"], "error: --name requires a command"),
        (["run", "--timeout", "soon", "a.yaml"], "'soon' is not a duration such as 90s"),
        (["run", "--feature-gates", "X=true", "--", "true"], "unknown feature gate 'X'"),
        (["run", "--image-map", "x", "--", "true"], "error: --image-map x: expected IMAGE=COMMAND"),
        (["run", "--runtime", "docker", "--", "true"], "(use --runtime podman --engine docker)"),
        (["runn"], "error: unknown command 'runn' (did you mean `onejob run`?)"),
        (["run", "--nope"], "No such option"),
        (["serve", "--listen", "here"], "error: --listen here: expected HOST:PORT"),
        (["get"], "error: no object specified (for example jobs, or job/NAME)"),
        (["get", "jbos"], "error: unknown kind 'jbos' (did you mean jobs?)"),
        (["delete", "job/x"], "(start one with onejob serve)"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_two(
    onejob: CommandLine, words: list[str], expected: str
) -> None:
    done = onejob.run(*words)
    assert done.returncode == 2
    assert expected in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("error: ")


def test_json_is_alone_on_stdout(onejob: CommandLine) -> None:
    write(onejob, "a.yaml", job_yaml("good", "echo fine"))
    write(onejob, "b.yaml", job_yaml("bad", "exit 2", spec="backoffLimit: 0"))
    done = onejob.run("run", "-o", "json", "a.yaml", "b.yaml")
    assert done.returncode == 1
    result = json.loads(done.stdout)
    assert (result["outcome"], result["exitCode"]) == ("Failed", 1)
    outcomes = {job["name"]: (job["outcome"], job["pods"]) for job in result["jobs"]}
    assert outcomes == {"good": ("Complete", 1), "bad": ("Failed", 1)}
    assert result["jobs"][1]["failedPods"][0]["exitCode"] == 2
    assert "] fine" in done.stderr


def test_quiet_prints_only_failures(onejob: CommandLine) -> None:
    assert onejob.run("run", "-q", "--", "echo", "hi").stdout == ""
    failed = onejob.run("run", "-q", "--retries", "0", "--", "sh", "-c", "echo oh; exit 1")
    assert failed.stdout == ""
    assert "| oh" in failed.stderr


def test_a_run_is_found_again_by_its_jobs_name(onejob: CommandLine) -> None:
    write(onejob, "job.yaml", job_yaml("found", "echo here I am"))
    assert onejob.run("run", "-n", "batch", "job.yaml").returncode == 0
    assert onejob.run("logs", "job/found").stdout == "here I am\n"
    table = onejob.run("get", "jobs").stdout
    assert table.splitlines()[1].split()[:3] == ["found", "Complete", "1/1"]
    assert onejob.run("wait", "job/found").returncode == 0
    assert "is Complete" in onejob.run("why", "job/found").stdout
    assert "Pods Statuses:    0 Active (0 Ready) / 1 Succeeded / 0 Failed" in (
        onejob.run("describe", "job/found").stdout
    )
    refused = onejob.run("logs", "job/found", "-n", "elsewhere")
    assert refused.returncode == 1


def test_the_newest_of_several_runs_is_the_one_that_is_meant(onejob: CommandLine) -> None:
    for word in ("old", "new"):
        assert onejob.run("run", "--name", "same", "--", "echo", word).returncode == 0
    assert onejob.run("logs", "job/same").stdout == "new\n"
    assert len(onejob.run("get", "jobs", "--no-headers").stdout.splitlines()) == 2


def test_an_ephemeral_run_leaves_nothing(onejob: CommandLine) -> None:
    scratch = onejob.home / "tmp"
    scratch.mkdir()
    done = onejob.run("run", "--ephemeral", "--", "true", TMPDIR=str(scratch))
    assert done.returncode == 0, done.stderr
    assert not onejob.data_dir.exists()
    assert list(scratch.iterdir()) == []


def test_the_same_file_runs_twice_at_once(onejob: CommandLine) -> None:
    file = write(onejob, "job.yaml", job_yaml("twin", "sleep 0.3; echo done"))
    both = [onejob.start("run", file) for _ in range(2)]
    for process in both:
        output, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
        assert "] done" in output


def test_interrupting_stops_the_pods_gracefully(onejob: CommandLine) -> None:
    mark = f"onejob-test-{os.getpid()}-int"
    script = (
        f"trap 'echo saying goodbye; exit 0' TERM; echo up; exec -a x sleep 60 & : {mark}; wait"
    )
    file = write(onejob, "job.yaml", job_yaml("long", script.replace("exec -a x ", "")))
    process = onejob.start("run", file)
    await_line(process, "] up")
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "stopping all Pods" in output
    assert "] saying goodbye" in output
    assert "long   Stopped" in output
    assert "saying goodbye" in onejob.run("logs", "job/long").stdout


def test_interrupting_several_pods_is_no_failure_of_the_job(onejob: CommandLine) -> None:
    quick = QuickCommandLine(onejob.home)
    spec = "parallelism: 4\ncompletions: 4\nbackoffLimit: 0"
    file = write(onejob, "job.yaml", job_yaml("four", "echo up; exec sleep 60", spec=spec))
    process = onejob.start("run", "-o", "json", file)
    assert process.stderr is not None
    for _ in range(4):
        while "] up" not in process.stderr.readline():
            pass
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "BackoffLimitExceeded" not in errors
    result = json.loads(output)
    assert result["outcome"] == "Interrupted"
    (job,) = result["jobs"]
    assert (job["outcome"], job["pods"], job["failed"]) == ("Stopped", 4, 0)
    kept = json.loads(quick.run("get", "job", "four", "-o", "json").stdout)
    assert "conditions" not in kept["status"]
    assert quick.run("get", "jobs", "--no-headers").stdout.split()[1] == "Stopped"
    pods = quick.run("get", "pods", "--no-headers").stdout.splitlines()
    assert [line.split()[2] for line in pods] == ["Stopped"] * 4
    assert "was stopped" in quick.run("why", "job/four").stdout.splitlines()[0]


def test_interrupting_twice_kills_pods_that_do_not_listen(onejob: CommandLine) -> None:
    script = "trap 'echo not yet' TERM; echo up; while :; do sleep 0.1; done"
    file = write(onejob, "job.yaml", job_yaml("deaf", script))
    process = onejob.start("run", file)
    await_line(process, "] up")
    process.send_signal(signal.SIGTERM)
    await_line(process, "] not yet")
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 143
    assert "stopped (exit code 137" in output
    record = json.loads(next(onejob.data_dir.glob("runs/*/run.json")).read_text())
    assert (record["stoppedBy"], record["exitCode"]) == ("SIGTERM", 143)


def test_a_closed_terminal_ends_the_run_and_its_pods(onejob: CommandLine) -> None:
    word = f"3{os.getpid() % 10000:04}.25"
    file = write(onejob, "job.yaml", job_yaml("long", f"echo up; exec sleep {word}"))
    master, slave = os.openpty()
    process = onejob.start(
        *("run", "--plain", file),
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        env={**onejob.environment, "NO_COLOR": "1"},
    )
    os.close(slave)
    seen = b""
    while b"] up" not in seen and process.poll() is None:
        seen += os.read(master, 4096)
    assert running(word)
    os.close(master)
    process.send_signal(signal.SIGHUP)
    assert process.wait(60) == 129
    assert gone_soon(word)


def test_run_with_ignored_sighup_continues(onejob: CommandLine) -> None:
    process = onejob.start(
        "run", "--", "sh", "-c", "echo up; until test -e go; do sleep 0.05; done; echo went on",
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )  # fmt: skip
    await_line(process, "] up")
    process.send_signal(signal.SIGHUP)
    (onejob.home / "go").touch()
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "] went on" in output


def test_a_killed_run_takes_its_pods_along(onejob: CommandLine) -> None:
    quick = QuickCommandLine(onejob.home)
    word = f"4{os.getpid() % 10000:04}.25"
    file = write(onejob, "job.yaml", job_yaml("long", f"echo up; exec sleep {word}"))
    process = onejob.start("run", file)
    await_line(process, "] up")
    process.kill()
    process.communicate(timeout=60)
    assert gone_soon(word)
    assert quick.run("get", "jobs", "--no-headers").stdout.split()[1] == "Lost"
    assert "is lost" in quick.run("why", "job/long").stdout.splitlines()[0]
    waited = quick.run("wait", "job/long")
    assert (waited.returncode, "ended before" in waited.stderr) == (1, True)


def test_a_reader_that_goes_away_is_no_crash(onejob: CommandLine) -> None:
    script = "for i in $(seq 200); do echo line $i; sleep 0.02; done"
    process = onejob.start("run", "--", "sh", "-c", script)
    await_line(process, "line 1")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.wait(60) != 0
    assert process.stderr.read() == ""
    process.stderr.close()


def test_a_run_that_takes_too_long_is_stopped(onejob: CommandLine) -> None:
    done = onejob.run("run", "--timeout", "1s", "--", "sleep", "60")
    assert done.returncode == 124
    assert "timed out after 1s" in done.stdout


@pytest.mark.parametrize("installed", [True, False])
def test_an_image_without_a_command_is_refused_with_a_way_out(
    onejob: CommandLine, installed: bool
) -> None:
    """It could never start; retries, which take ten minutes, would not help."""
    engine = onejob.home / "bin" / "podman"
    engine.parent.mkdir()
    if installed:
        engine.touch(0o755)
    text = job_yaml("bare", "true").replace("busybox", "example.org/tool:1")
    text = "\n".join(line for line in text.splitlines() if "command:" not in line)
    write(onejob, "job.yaml", text)
    done = onejob.run("run", "job.yaml", PATH=str(engine.parent))
    others = "add a command, or map the image with --image-map example.org/tool:1=COMMAND"
    ways = (
        f"use --runtime podman, which is installed; {others}"
        if installed
        else f"{others}; with podman installed: use --runtime podman"
    )
    assert (done.returncode, done.stdout, done.stderr) == (
        2,
        "",
        "error: job.yaml: document 1, line 10: spec.template.spec.containers[0].image: the "
        f"container has no command, and images are not run by this runtime ({ways})\n",
    )
    assert onejob.run("run", "--dry-run=client", "job.yaml").returncode == 0
    assert onejob.run("run", "--runtime", "simulated", "job.yaml").returncode == 0
    mapped = onejob.run("run", "--image-map", "example.org/tool=echo mapped", "job.yaml")
    assert mapped.returncode == 0
    assert "] mapped" in mapped.stdout


def test_a_command_that_fails_is_not_tried_again_unless_asked(onejob: CommandLine) -> None:
    typo = onejob.run("run", "--", "./trian.py")
    assert typo.returncode == 1
    assert 'StartError: exec: "./trian.py": no such file or directory' in typo.stdout
    hint = f"hint: commands without a workingDir start in {onejob.home}; check that ./trian.py"
    assert hint in typo.stdout
    assert "retry" not in typo.stdout
    (onejob.home / "plain.sh").write_text("echo hi\n")
    forbidden = onejob.run("run", "--", "./plain.sh")
    assert "hint: run chmod +x ./plain.sh" in forbidden.stdout


def test_one_index_that_fails_does_not_end_the_others(onejob: CommandLine) -> None:
    script = "test $JOB_COMPLETION_INDEX != 0"
    indexed = ("--indexed", "--completions", "3", "--parallelism", "1")
    done = onejob.run("run", "-o", "json", *indexed, "--", "sh", "-c", script)
    assert done.returncode == 1
    (job,) = json.loads(done.stdout)["jobs"]
    assert (job["completedIndexes"], job["failedIndexes"]) == ("1,2", "0")
    assert (job["pods"], job["retries"]) == (3, 0)


_NEEDS_CONFIG = "env: [{name: X, valueFrom: {configMapKeyRef: {name: settings, key: x}}}]"


def needs_config(name: str) -> str:
    return job_yaml(name, "echo it ran $X") + f"        {_NEEDS_CONFIG}\n"


def test_a_run_ends_with_the_reason_when_its_pods_can_never_start(onejob: CommandLine) -> None:
    quick = QuickCommandLine(onejob.home)
    write(onejob, "stuck.yaml", needs_config("stuck"))
    write(onejob, "other.yaml", job_yaml("other", "sleep 3; echo other is done"))
    done = onejob.run("run", "-o", "json", "stuck.yaml", "other.yaml")
    assert done.returncode == 1
    assert "other is done" in done.stderr, "the other Job is not cut short"
    why = 'CreateContainerConfigError: configmap "settings" not found'
    assert f"cannot start: {why}" in done.stderr
    result = json.loads(done.stdout)
    assert result["outcome"] == "Blocked"
    stuck, other = result["jobs"]
    assert (stuck["outcome"], stuck["reason"], stuck["pods"]) == (
        "Blocked", "CreateContainerConfigError", 1
    )  # fmt: skip
    assert other["outcome"] == "Complete"
    kept = json.loads(quick.run("get", "job", "stuck", "-o", "json").stdout)
    assert "conditions" not in kept["status"]


def test_common_start_problem_is_printed_once(onejob: CommandLine) -> None:
    spec = "parallelism: 5\ncompletions: 5"
    write(onejob, "many.yaml", job_yaml("many", "true", spec=spec) + f"        {_NEEDS_CONFIG}\n")
    done = onejob.run("run", "many.yaml")
    assert done.returncode == 1
    assert done.stdout.count("pod many-") == done.stdout.count("hint: ") == 1


def test_job_waits_for_config_map_of_same_file(onejob: CommandLine) -> None:
    config = "\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {x: word}\n"
    write(onejob, "job.yaml", needs_config("fine") + config)
    done = onejob.run("run", "job.yaml")
    assert done.returncode == 0, done.stdout
    assert "] it ran word" in done.stdout
    assert "cannot start" not in done.stdout


def test_a_run_waits_on_if_asked_to(onejob: CommandLine) -> None:
    write(onejob, "stuck.yaml", needs_config("stuck"))
    done = onejob.run("run", "--keep-waiting", "--timeout", "3s", "stuck.yaml")
    assert done.returncode == 124
    assert "cannot start" in done.stdout
    assert "timed out after 3s" in done.stdout


def test_crash_looping_container_is_reported_at_once(onejob: CommandLine) -> None:
    text = (
        job_yaml("again", "true")
        .replace("Never", "OnFailure")
        .replace("[sh, -c, 'true']", "[./no]")
    )
    write(onejob, "job.yaml", text)
    done = onejob.run("run", "--timeout", "3s", "job.yaml")
    assert 'main cannot start: exec: "./no": no such file or directory' in done.stdout
    assert "check that ./no exists" in done.stdout


def test_lines_of_attempts_that_end_at_once_are_shown(onejob: CommandLine) -> None:
    """Even if they have ended before their start is reported: one status is written."""
    text = job_yaml("again", "echo attempt; exit 3", spec="backoffLimit: 2")
    write(onejob, "job.yaml", text.replace("Never", "OnFailure"))
    done = onejob.run("run", "--timeout", "3s", "-o", "raw", "job.yaml")
    assert done.stdout == "attempt\nattempt\n"


def test_a_kubeconfig_of_the_user_is_never_touched(onejob: CommandLine) -> None:
    folder = onejob.home / ".kube"
    folder.mkdir()
    poison = "this is no kubeconfig: ["
    (folder / "config").write_text(poison)
    (onejob.home / "other").write_text(poison)
    other = str(onejob.home / "other")
    assert onejob.run("run", "--", "true", KUBECONFIG=other).returncode == 0
    assert onejob.run("get", "jobs", KUBECONFIG=other).returncode == 0
    assert onejob.run("delete", "job/x", KUBECONFIG=other).returncode == 2
    assert (folder / "config").read_text() == poison
    assert (onejob.home / "other").read_text() == poison


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "small"
    path.mkdir()
    options = "size=2m,mode=700"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "onejob-test", path], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", path], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_run_reports_full_disk_and_waits(onejob: CommandLine, small_disk: Path) -> None:
    script = "cat /dev/zero > small/fill 2>/dev/null; sleep 2; rm small/fill; echo there is room"
    done = onejob.run("run", "--data-dir", "small/d", "--", "sh", "-c", script)
    assert done.returncode == 0, done.stdout
    assert "note: No space left on device: " in done.stdout
    assert "waiting for free disk space" in done.stdout
    assert done.stderr == ""
    full = "echo up; cat /dev/zero > small/fill 2>/dev/null; sleep 60"
    process = onejob.start("run", "--data-dir", "small/d", "--", "sh", "-c", full)
    await_line(process, "waiting for free disk space")
    process.send_signal(signal.SIGINT)
    await_line(process, "stopping all Pods")
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (130, "")
    assert "sh    Stopped" in output


def test_a_data_dir_that_cannot_be_written_is_named(onejob: CommandLine) -> None:
    (onejob.home / "file").write_text("in the way")
    place = onejob.home / "file" / "state"
    done = onejob.run("run", "--data-dir", str(place), "--", "true")
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: cannot write state to {place}: ")
    assert "--data-dir" in done.stderr


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("NOT_SET", "error: --pass-env NOT_SET: variable is not set (set it, or "),
        (
            "A=b",
            "error: --pass-env A=b: expected a variable name (set the value in the environment "
            "of onejob)",
        ),
    ],
)
def test_a_variable_that_cannot_be_passed_is_an_error(
    onejob: CommandLine, name: str, error: str
) -> None:
    done = onejob.run("run", "--pass-env", name, "--", "env")
    assert done.returncode == 2
    assert done.stderr.startswith(error)
    assert done.stderr.count("\n") == 1
    assert not onejob.data_dir.exists()


def test_the_simulated_runtime_starts_no_process(onejob: CommandLine) -> None:
    word = f"5{os.getpid() % 10000:04}.25"
    done = onejob.run("run", "--runtime", "simulated", "--", "sleep", word)
    assert done.returncode == 0, done.stderr
    assert "Complete" in done.stdout


_SABOTAGE = """
from onejob.cli.main import main
from onejob.node.process.runtime import ProcessRuntime

def broken(self):
    raise ZeroDivisionError("sabotage")

ProcessRuntime._flush = broken
main()
"""


def test_a_bug_inside_ends_the_run_instead_of_hanging_it(onejob: CommandLine) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _SABOTAGE, "run", "--", "true"],
        capture_output=True,
        text=True,
        env=onejob.environment,
        cwd=onejob.home,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: internal error: ")
    assert "ZeroDivisionError('sabotage')" in done.stderr
    assert done.stderr.count("\n") == 1
    (log,) = onejob.data_dir.glob("runs/*/onejob.log")
    assert "sabotage" in log.read_text()


@pytest.mark.parametrize("limit", [None, 1])
def test_default_failed_pods_limit_applies_to_jobs_without_own(
    onejob: CommandLine, limit: int | None
) -> None:
    """With JobManagedBy switched off, a Job that names another controller is run as well."""
    text = job_yaml("fails", "exit 1").replace(
        "spec:\n", "spec:\n  backoffLimit: 2\n  backoffSeconds: 0\n  managedBy: a.b/c\n", 1
    )
    options = [] if limit is None else ["--default-failed-pods-limit", str(limit)]
    file = write(onejob, "job.yaml", text)
    done = onejob.run("run", file, "--feature-gates", "JobManagedBy=false", *options)
    assert "BackoffLimitExceeded" in done.stdout, done.stderr
    pods = json.loads(onejob.run("get", "pods", "-o", "json").stdout)["items"]
    assert len(pods) == (3 if limit is None else limit)
