"""kubectl-like commands against a real server."""

import json
import signal
import time
from pathlib import Path

import pytest
import yaml

from tests.cli.command_line import CommandLine, job_yaml


@pytest.fixture(scope="module")
def finished(served: CommandLine) -> CommandLine:
    """Return a server with a Complete Job of two Pods, `pair`, and a Failed one, `bad`."""
    (served.home / "pair.yaml").write_text(
        job_yaml(
            "pair",
            "echo index $JOB_COMPLETION_INDEX; echo second line",
            spec="completions: 2\nparallelism: 2\ncompletionMode: Indexed",
        )
    )
    (served.home / "bad.yaml").write_text(
        job_yaml("bad", "echo about to fail; exit 4", spec="backoffLimit: 0")
    )
    created = served.run("create", "-f", "pair.yaml", "-f", "bad.yaml")
    assert created.stdout == "job.batch/pair created\njob.batch/bad created\n", created.stderr
    assert served.run("wait", "job/pair", "--timeout", "30s").returncode == 0
    assert served.run("wait", "job/bad", "--timeout", "30s").returncode == 1
    return served


def test_get_prints_the_servers_table(finished: CommandLine) -> None:
    lines = finished.run("get", "jobs").stdout.splitlines()
    assert lines[0].split() == ["NAME", "STATUS", "COMPLETIONS", "DURATION", "AGE"]
    rows = {line.split()[0]: line.split()[1:3] for line in lines[1:]}
    assert rows["pair"] == ["Complete", "2/2"]
    assert rows["bad"] == ["Failed", "0/1"]


def test_get_by_name_kind_and_label(finished: CommandLine) -> None:
    assert "bad" not in finished.run("get", "job", "pair").stdout
    wide = finished.run("get", "job/pair", "-o", "wide", "--no-headers").stdout
    assert "busybox" in wide
    pods = finished.run("get", "po", "-l", "job-name=pair", "-o", "name").stdout.split()
    assert len(pods) == 2
    assert all(pod.startswith("pod/pair-") for pod in pods)
    both = finished.run("get", "jobs,pods").stdout
    assert "job.batch/pair" in both
    assert "pod/bad-" in both
    everywhere = finished.run("get", "jobs", "-A").stdout.splitlines()
    assert everywhere[0].startswith("NAMESPACE")


def test_get_as_documents(finished: CommandLine) -> None:
    job = yaml.safe_load(finished.run("get", "job", "pair", "-o", "yaml").stdout)
    assert (job["kind"], job["status"]["completedIndexes"]) == ("Job", "0,1")
    assert "managedFields" not in job["metadata"]
    jobs = json.loads(finished.run("get", "jobs", "-o", "json").stdout)
    assert jobs["kind"] == "List"
    assert {item["metadata"]["name"] for item in jobs["items"]} >= {"pair", "bad"}
    kept = finished.run("get", "job", "pair", "-o", "yaml", "--show-managed-fields").stdout
    assert "managedFields" in kept


def test_describe_omits_last_applied_annotation(finished: CommandLine) -> None:
    """As kubectl does: the annotation repeats the whole manifest in one line."""
    path = finished.home / "noted.yaml"
    for others, shown in (({}, ["<none>"]), ({"team": "a"}, ["team:", "a"])):
        annotations = {"kubectl.kubernetes.io/last-applied-configuration": "{}", **others}
        metadata = {"name": "noted", "annotations": annotations}
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}))
        assert finished.run("apply", "-f", "noted.yaml").returncode == 0
        described = finished.run("describe", "configmap/noted").stdout.splitlines()
        assert not any("last-applied" in line for line in described)
        (line,) = [line for line in described if line.startswith("Annotations:")]
        assert line.split()[1:] == shown


def test_get_without_objects_prints_message(finished: CommandLine) -> None:
    nothing = finished.run("get", "jobs", "-n", "kube-system")
    assert (nothing.returncode, nothing.stdout) == (0, "")
    assert nothing.stderr == "No resources found in kube-system namespace.\n"
    for words, text in (
        (("jobs", "-l", "a=none"), "No resources found in default namespace.\n"),
        (("jobs", "-l", "a=none", "-A"), "No resources found.\n"),
        (("priorityclasses", "-l", "a=none"), "No resources found.\n"),
    ):
        assert finished.run("get", *words).stderr == text
    missing = finished.run("get", "job", "nope")
    assert missing.returncode == 1
    assert missing.stderr == 'error: jobs.batch "nope" not found\n'


def test_get_watch_prints_changes(finished: CommandLine) -> None:
    process = finished.start("get", "jobs", "-w", "-n", "default")
    assert process.stdout is not None
    assert process.stdout.readline().startswith("NAME")
    finished.run("create", "job", "watched", "--", "true")
    for line in process.stdout:
        if line.startswith("watched") and "Complete" in line:
            break
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    process.communicate()


def test_logs_of_a_job_name_the_pod_of_each_line(finished: CommandLine) -> None:
    lines = finished.run("logs", "job/pair").stdout.splitlines()
    assert len(lines) == 4
    assert all(line.startswith("[pair-") for line in lines)
    last = finished.run("logs", "job/pair", "--tail", "1").stdout.splitlines()
    assert [line.partition("] ")[2] for line in last] == ["second line"] * 2
    bare = finished.run("logs", "job/pair", "--no-prefix").stdout.splitlines()
    assert sorted(set(bare)) == ["index 0", "index 1", "second line"]


def test_logs_of_a_pod_and_of_a_selection(finished: CommandLine) -> None:
    pod = finished.run("get", "pods", "-l", "job-name=bad", "-o", "name").stdout.strip()
    assert finished.run("logs", pod).stdout == "about to fail\n"
    assert finished.run("logs", pod.removeprefix("pod/"), "-c", "main").returncode == 0
    wrong = finished.run("logs", pod, "-c", "other")
    assert wrong.returncode == 2
    assert "has no container other (its containers are main)" in wrong.stderr
    assert finished.run("logs", "-l", "job-name=bad").stdout == "about to fail\n"
    stamped = finished.run("logs", pod, "--timestamps").stdout
    assert stamped.startswith("20")
    assert stamped.endswith(" about to fail\n")


def test_following_ends_with_the_container(finished: CommandLine) -> None:
    finished.run("create", "job", "talk", "--", "sh", "-c", "echo one; sleep 0.5; echo two")
    finished.run("wait", "job/talk", "--for", "condition=complete", "--timeout", "30s")
    assert finished.run("logs", "-f", "job/talk").stdout == "one\ntwo\n"
    assert finished.run("logs", "-f", "job/pair").stdout.count("second line") == 2


def test_describe_has_kubectls_lines_and_the_events(finished: CommandLine) -> None:
    text = finished.run("describe", "job/pair").stdout
    labels = [line.partition(":")[0] for line in text.splitlines() if line[:1].isalpha()]
    assert labels == [
        *("Name", "Namespace", "Selector", "Labels", "Annotations", "Parallelism"),
        *("Completions", "Completion Mode", "Suspend", "Backoff Limit", "Start Time"),
        *("Completed At", "Duration", "Pods Statuses", "Completed Indexes", "Pod Template"),
        *("History", "Events"),
    ]
    assert "Completed Indexes:  0,1\n" in text
    assert "SuccessfulCreate" in text
    pod = finished.run("get", "pods", "-l", "job-name=bad", "-o", "name").stdout.strip()
    described = finished.run("describe", pod).stdout
    assert "Exit Code:  4" in described
    assert "Controlled By:    Job/bad" in described


def test_why_prints_cause_evidence_and_next_step(finished: CommandLine) -> None:
    text = finished.run("why", "job/bad").stdout
    assert text.startswith("job/bad is Failed")
    assert "BackoffLimitExceeded" in text
    assert "container main exited with code 4 (Error)" in text
    assert "    | about to fail\n" in text
    assert "until it is deleted" in text


def test_why_gives_reason_and_remedy_when_pods_are_refused(finished: CommandLine) -> None:
    (finished.home / "refused.yaml").write_text(
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: refused}\n"
        "spec: {template: {spec: {restartPolicy: Never, priorityClassName: none-such, containers: "
        "[{name: c, image: x, command: ['true']}]}}}\n"
    )
    assert finished.run("create", "-f", "refused.yaml").returncode == 0
    waits_until = time.monotonic() + 60
    while "cannot create its Pods" not in (text := finished.run("why", "job/refused").stdout):
        assert time.monotonic() < waits_until, text
    assert "no PriorityClass with name none-such was found" in text
    assert "  - create the PriorityClass none-such\n" in text
    assert "is started" not in text
    assert finished.run("delete", "job/refused", "--now").returncode == 0


def test_waiting_gives_up_in_time(finished: CommandLine) -> None:
    finished.run("create", "job", "slow", "--", "sleep", "60")
    waited = finished.run("wait", "job/slow", "--timeout", "1s")
    assert waited.returncode == 1
    assert "job.batch/slow is not finished after 1.0s" in waited.stderr
    assert finished.run("delete", "job/slow", "--now").stdout == 'job.batch "slow" deleted\n'
    gone = finished.run("wait", "job/slow", "--for", "delete")
    assert (gone.returncode, gone.stdout) == (0, "job.batch/slow deleted\n")


def test_wait_selects_objects_by_label(finished: CommandLine) -> None:
    (finished.home / "labelled.yaml").write_text(
        "".join(
            "---\napiVersion: batch/v1\nkind: Job\n"
            f"metadata: {{name: {name}, labels: {{app: waited}}}}\n"
            "spec: {template: {spec: {restartPolicy: Never, containers: "
            "[{name: c, image: x, command: ['true']}]}}}\n"
            for name in ("labelled-a", "labelled-b")
        )
    )
    assert finished.run("create", "-f", "labelled.yaml").returncode == 0
    waited = finished.run("wait", "jobs", "-l", "app=waited")
    assert waited.returncode == 0
    assert waited.stdout == "job.batch/labelled-a Complete\njob.batch/labelled-b Complete\n"
    none = finished.run("wait", "jobs", "-l", "app=nothing")
    assert (none.returncode, none.stderr) == (1, "error: no matching resources found\n")
    assert finished.run("wait", "job/labelled-a", "-l", "app=waited").returncode == 2
    assert finished.run("delete", "jobs", "-l", "app=waited").returncode == 0


def test_a_dry_run_deletes_nothing(finished: CommandLine) -> None:
    deleted = finished.run("delete", "job/bad", "--dry-run", "server")
    assert deleted.stdout == 'job.batch "bad" deleted (dry run)\n'
    assert finished.run("get", "job/bad", "-o", "name").stdout == "job.batch/bad\n"


def test_apply_creates_changes_and_leaves_alone(finished: CommandLine) -> None:
    file = finished.home / "map.yaml"
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {a: '1'}\n"
    file.write_text(text)
    assert finished.run("apply", "-f", "map.yaml").stdout == "configmap/settings created\n"
    assert finished.run("apply", "-f", "map.yaml").stdout == "configmap/settings unchanged\n"
    file.write_text(text.replace("'1'", "'2'"))
    assert finished.run("apply", "-f", "map.yaml").stdout == "configmap/settings configured\n"
    assert finished.run("delete", "-f", "map.yaml").stdout == 'configmap "settings" deleted\n'


def test_why_explains_a_cronjob(finished: CommandLine) -> None:
    created = finished.run(
        "create", "cronjob", "tidy", "--schedule", "0 3 * * *", "--", "true"
    )  # fmt: skip
    assert created.returncode == 0, created.stderr
    assert finished.run("suspend", "cronjob/tidy").returncode == 0
    text = finished.run("why", "cronjob/tidy").stdout
    assert text.startswith("cronjob/tidy is suspended.\n\nWhy:\n  - spec.suspend is true, set by ")
    assert "then the next Job is started at " in text
    assert finished.run("delete", "cronjob/tidy").returncode == 0


def test_an_apply_conflict_names_the_way_out(finished: CommandLine) -> None:
    file = finished.home / "taken.yaml"
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: taken}\ndata: {a: '1', b: '1'}\n"
    file.write_text(text)
    assert finished.run("create", "-f", "taken.yaml").returncode == 0
    file.write_text(text.replace("'1'", "'2'"))
    refused = finished.run("apply", "-f", "taken.yaml")
    assert refused.returncode == 1
    assert "Apply failed with 2 conflicts" in refused.stderr
    assert refused.stderr.endswith("(--force-conflicts takes ownership of these fields)\n")
    assert refused.stderr.count("\n") == 1
    forced = finished.run("apply", "-f", "taken.yaml", "--force-conflicts")
    assert forced.stdout == "configmap/taken configured\n"


def test_rejected_manifest_error_names_file(finished: CommandLine) -> None:
    (finished.home / "wrong.yaml").write_text(job_yaml("x", "true").replace("Never", "Always"))
    refused = finished.run("create", "-f", "wrong.yaml")
    assert refused.returncode == 1
    assert refused.stderr.startswith('error: wrong.yaml: document 1: Job.batch "x" is invalid')
    again = finished.run("create", "-f", "pair.yaml")
    assert again.stderr.endswith('jobs.batch "pair" already exists\n')


def test_delete_needs_to_know_which(finished: CommandLine) -> None:
    assert finished.run("delete", "jobs").returncode == 2
    assert finished.run("delete", "job", "nope").returncode == 1
    assert finished.run("delete", "job", "nope", "--ignore-not-found").returncode == 0
    assert finished.run("delete", "jobs", "--all", "-n", "kube-system").stdout == (
        "No resources found.\n"
    )


def test_a_kubeconfig_can_be_named(finished: CommandLine, tmp_path: Path) -> None:
    other = CommandLine(tmp_path)
    kubeconfig = str(finished.data_dir / "kubeconfig")
    assert "pair" in other.run("get", "jobs", "--kubeconfig", kubeconfig).stdout
    missing = other.run("get", "jobs", "--kubeconfig", "nowhere")
    assert missing.returncode == 2
    assert "nowhere: No such file" in missing.stderr
    assert (finished.data_dir / "kubeconfig").stat().st_mode & 0o777 == 0o600


def test_kept_runs_are_listed_with_running_server(finished: CommandLine) -> None:
    assert finished.run("run", "--name", "past", "--", "echo", "long ago").returncode == 0
    assert "past" not in finished.run("get", "jobs").stdout
    assert "past" in finished.run("get", "jobs", "--runs").stdout
    missing = finished.run("logs", "job/past")
    assert missing.returncode == 1
    assert missing.stderr.startswith("error: job.batch/past not found on the server; run 2")
    assert finished.run("logs", "job/past", "--run", "past").stdout == "long ago\n"


def test_a_created_command_starts_where_its_caller_is(finished: CommandLine) -> None:
    script = finished.home / "where.sh"
    script.write_text("#!/bin/sh\npwd\n")
    script.chmod(0o755)
    (finished.home / "sub").mkdir()
    for name, words in (("here", ["./where.sh"]), ("below", ["../where.sh"])):
        folder = ["--workdir", "sub"] if name == "below" else []
        assert finished.run("create", "job", name, *folder, "--", *words).returncode == 0
        assert finished.run("wait", f"job/{name}", "--timeout", "30s").returncode == 0
    assert finished.run("logs", "job/here").stdout == f"{finished.home}\n"
    assert finished.run("logs", "job/below").stdout == f"{finished.home}/sub\n"
    printed = finished.run("create", "job", "x", "--dry-run=client", "-o", "yaml", "--", "date")
    assert f"workingDir: {finished.home}" in printed.stdout


def test_version_asks_the_server(finished: CommandLine) -> None:
    versions = json.loads(finished.run("version", "-o", "json").stdout)
    assert versions["server"] == versions["kubernetesApi"]
    assert "server" not in json.loads(finished.run("version", "--client", "-o", "json").stdout)


def test_two_servers_cannot_share_a_data_dir(finished: CommandLine) -> None:
    second = finished.run("serve", "--listen", "127.0.0.1:0")
    assert second.returncode == 2
    assert "is in use by another onejob" in second.stderr
    assert second.stderr.count("\n") == 1


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_name_the_command(onejob: CommandLine, shell: str) -> None:
    done = onejob.run("completion", shell)
    assert done.returncode == 0, done.stderr
    assert "onejob" in done.stdout


def test_no_line_in_a_pipe_ends_with_spaces(finished: CommandLine) -> None:
    """Empty cells occur at the end of a row, too, and in the middle of a text of many lines."""
    (finished.home / "cron.yaml").write_text(
        "apiVersion: batch/v1\nkind: CronJob\nmetadata:\n  name: gappy\n  annotations:\n"
        '    notes: "first\\n\\nlast"\nspec:\n  schedule: "0 0 1 1 *"\n  jobTemplate:\n    spec:\n'
        "      template:\n        spec:\n          restartPolicy: Never\n"
        "          containers: [{name: c, image: i, command: [echo]}]\n"
    )
    assert finished.run("apply", "-f", "cron.yaml").returncode == 0
    for command in [
        "runs",
        "get jobs,pods,events,cronjobs,nodes",
        "get pods -A -o wide",
        "top",
        "queue",
        "user list",
        "mirror list",
        "notify list",
        "cron history gappy",
        "cron next @daily",
        "describe cronjob/gappy",
        "describe job/bad",
        "why job/bad",
        "results pair",
        "logs --deleted",
        "version",
        "--help",
        "run --help",
    ]:
        words = command.split()
        done = finished.run(*words)
        lines = (done.stdout + done.stderr).splitlines()
        assert [line for line in lines if line != line.rstrip()] == [], words
