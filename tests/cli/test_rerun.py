"""Rerun of Jobs: copied and omitted fields, and the original indexes."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from onejob.cli.manifests.job_from_command import CommandJob, job_document
from onejob.cli.manifests.params import add_parameters
from onejob.planning.bad_input import BadInput
from onejob.planning.job.parameter_rows import rows_of
from onejob.planning.job.rerun import RERUN_INDEXES, rerun
from tests.cli.command_line import CommandLine, job_yaml


def stored(job: dict[str, Any], **status: Any) -> dict[str, Any]:
    """Return the Job as a server would."""
    job["metadata"].update(uid="u-1", resourceVersion="7", namespace="default", generation=1)
    job["metadata"].setdefault("annotations", {})["batch.kubernetes.io/job-tracking"] = ""
    labels = {"controller-uid": "u-1", "job-name": job["metadata"]["name"], "app": "x"}
    job["spec"]["template"]["metadata"] = {"labels": labels}
    job["spec"]["selector"] = {"matchLabels": {"controller-uid": "u-1"}}
    job["status"] = status
    return job


def indexed(completions: int, **status: Any) -> dict[str, Any]:
    command = ("sh", "-c", "echo $JOB_COMPLETION_INDEX '$x'")
    job = CommandJob(command, name="x", completions=completions, indexed=True)
    return stored(job_document(job, {}), **status)


def index_seen(job: dict[str, Any], own_index: int) -> str:
    (container,) = job["spec"]["template"]["spec"]["containers"]
    environment = {"PATH": "/usr/bin:/bin", "ONEJOB_RERUN_INDEX": str(own_index)}
    environment |= {item["name"]: item["value"] for item in container["env"] if "value" in item}
    done = subprocess.run(container["command"], env=environment, capture_output=True, text=True)
    assert done.stderr == ""
    return done.stdout


def test_rerun_omits_server_set_fields() -> None:
    (fresh,) = rerun(indexed(3), None, taken={"x", "x-rerun-1"})
    assert fresh["metadata"] == {
        "name": "x-rerun-2",
        "labels": {"onejob.dev/lineage": "x"},
        "annotations": {"onejob.dev/rerun-of": "x", "onejob.dev/rerun-of-uid": "u-1"},
    }
    assert "selector" not in fresh["spec"]
    assert fresh["spec"]["template"]["metadata"] == {"labels": {"app": "x"}}
    assert "status" not in fresh


def test_rerun_is_not_suspended() -> None:
    job = indexed(3)
    job["spec"]["suspend"] = True
    job["metadata"]["annotations"] = {"onejob.dev/queued": "2026-01-01T00:00:00Z", "kept": "yes"}
    (fresh,) = rerun(job, None)
    assert "suspend" not in fresh["spec"]
    assert set(fresh["metadata"]["annotations"]) == {
        "kept", "onejob.dev/rerun-of", "onejob.dev/rerun-of-uid",
    }  # fmt: skip


def test_only_indexes_that_did_not_succeed_are_repeated() -> None:
    (fresh,) = rerun(indexed(10, completedIndexes="0-2,5-8"), None, failed_only=True)
    assert fresh["spec"]["completions"] == 3
    assert fresh["metadata"]["annotations"]["onejob.dev/rerun-indexes"] == "3,4,9"
    assert [index_seen(fresh, own) for own in range(3)] == ["3 $x\n", "4 $x\n", "9 $x\n"]


def test_rerun_rejects_huge_index_ranges() -> None:
    with pytest.raises(BadInput, match="2,147,483,647 indexes"):
        rerun(indexed(2**31 - 1), None, failed_only=True)


def test_an_annotation_of_thousands_of_millions_of_indexes_is_read_as_far_as_it_can_count() -> None:
    job = indexed(3, completedIndexes="0")
    job["metadata"]["annotations"]["onejob.dev/rerun-indexes"] = "5-2147483646"
    (fresh,) = rerun(job, None, failed_only=True)
    assert fresh["metadata"]["annotations"]["onejob.dev/rerun-indexes"] == "6,7"


def test_a_container_without_words_takes_no_parameters() -> None:
    job = indexed(2)
    container = {"name": "c", "command": [], "env": []}
    job["spec"]["template"]["spec"]["containers"] = [container]
    with pytest.raises(BadInput, match="parameter rows"):
        rerun(job, {"metadata": {"name": "p"}, "data": {"rows-0": "export a=b"}})


def test_a_repetition_is_repeated_itself() -> None:
    (first,) = rerun(indexed(10, completedIndexes="0-2,5-8"), None, failed_only=True)
    first["status"] = {"completedIndexes": "0"}
    (second,) = rerun(first, None, taken={"x", "x-rerun-1"}, failed_only=True)
    assert second["metadata"]["name"] == "x-rerun-2"
    assert second["metadata"]["labels"]["onejob.dev/lineage"] == "x"
    assert second["metadata"]["annotations"]["onejob.dev/rerun-indexes"] == "4,9"
    assert [index_seen(second, own) for own in range(2)] == ["4 $x\n", "9 $x\n"]


def test_rerun_from_an_index_counts_as_in_the_first_job() -> None:
    (first,) = rerun(indexed(10), None, from_index=7)
    assert first["metadata"]["annotations"][RERUN_INDEXES] == "7-9"
    (second,) = rerun(first, None, taken={"x", "x-rerun-1"}, from_index=9)
    assert second["metadata"]["annotations"][RERUN_INDEXES] == "9"
    assert second["spec"]["completions"] == 1


def test_rerun_from_an_index_is_rejected_without_such_an_index() -> None:
    with pytest.raises(BadInput, match="no index 10"):
        rerun(indexed(10), None, from_index=10)
    plain = indexed(3)
    del plain["spec"]["completionMode"]
    with pytest.raises(BadInput, match="no indexes"):
        rerun(plain, None, from_index=0)
    with pytest.raises(BadInput, match="remaining indexes can be selected"):
        rerun(indexed(2**31 - 1), None, from_index=5)


def test_completions_that_are_missing_are_repeated() -> None:
    job = stored(job_document(CommandJob(["true"], name="x", completions=5), {}), succeeded=3)
    (fresh,) = rerun(job, None, failed_only=True)
    assert fresh["spec"]["completions"] == 2


@pytest.mark.parametrize(
    "job",
    [
        indexed(3, completedIndexes="0-2"),
        stored(job_document(CommandJob(["true"], name="x", completions=2), {}), succeeded=2),
    ],
)
def test_nothing_is_left_to_do(job: dict[str, Any]) -> None:
    assert rerun(job, None, failed_only=True) == []


def test_a_command_of_an_image_cannot_be_wrapped() -> None:
    job = indexed(2)
    del job["spec"]["template"]["spec"]["containers"][0]["command"]
    with pytest.raises(BadInput, match="container main has no command"):
        rerun(job, None, failed_only=True)


def sweep(*values: str, **status: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    job = job_document(CommandJob(["true"], name="x", completions=len(values), indexed=True), {})
    config_map = add_parameters(job, [{"v": value, "w": "1"} for value in values], ["true", "{v}"])
    return stored(job, **status), config_map


def test_rows_that_did_not_succeed_are_repeated() -> None:
    job, params = sweep("a", "b", "c", completedIndexes="1")
    config_map, fresh = rerun(job, params, failed_only=True)
    assert rows_of(config_map) == [{"v": "a", "w": "1"}, {"v": "c", "w": "1"}]
    assert config_map["metadata"]["name"] == "x-rerun-1-params"
    assert fresh["spec"]["completions"] == 2
    assert fresh["metadata"]["annotations"]["onejob.dev/params"] == "x-rerun-1-params"
    assert "x-params" not in json.dumps(fresh)


@pytest.mark.parametrize("data", [None, {}, {"a": "b"}, {"rows-0": "it's"}, {"rows-0": "x y=z"}])
def test_a_config_map_that_holds_something_else_is_refused(data: dict[str, str] | None) -> None:
    job, _ = sweep("a")
    with pytest.raises(BadInput, match="without its parameter rows"):
        rerun(job, {"metadata": {"name": "settings"}, "data": data})


def test_rows_for_a_job_that_was_not_made_for_them_are_refused() -> None:
    _, params = sweep("a")
    with pytest.raises(BadInput, match="without its parameter rows"):
        rerun(indexed(1), params)


def test_parameters_and_variables_can_be_set() -> None:
    job, params = sweep("a", "b")
    config_map, _ = rerun(job, params, settings={"w": "2"})
    assert [row["w"] for row in rows_of(config_map)] == ["2", "2"]
    with pytest.raises(BadInput, match="--set z: unknown parameter"):
        rerun(job, params, settings={"z": "2"})
    (fresh,) = rerun(indexed(1), None, settings={"z": "2"})
    assert fresh["spec"]["template"]["spec"]["containers"][0]["env"] == [
        {"name": "z", "value": "2"}
    ]


JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {name: flaky}
spec:
  completionMode: Indexed
  completions: 4
  parallelism: 4
  backoffLimitPerIndex: 0
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: c
        image: busybox
        command: [sh, -c, 'echo "index $JOB_COMPLETION_INDEX"; test $((JOB_COMPLETION_INDEX % 2)) = "$odd"']
        env: [{name: odd, value: "1"}]
"""  # noqa: E501


def test_server_reruns_failed_indexes(served: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(JOB)
    assert served.run("create", "-f", str(file)).returncode == 0
    assert served.run("wait", "job/flaky", "--timeout", "60s").returncode == 1
    done = served.run("rerun", "job/flaky", "--failed-only", "--set", "odd=0")
    assert done.stdout == "job.batch/flaky-rerun-1 created\n", done.stderr
    assert served.run("wait", "job/flaky-rerun-1", "--timeout", "60s").returncode == 0
    logs = served.run("logs", "job/flaky-rerun-1").stdout
    assert sorted(word for word in logs.split() if word.isdigit()) == ["0", "2"]
    assert _outcomes(served, "flaky") == [(0, 1, 1), (1, 0, 1), (2, 1, 1), (3, 0, 1)]
    assert _outcomes(served, "flaky-rerun-1") == [(0, 0, 2), (1, 0, 1), (2, 0, 2), (3, 0, 1)]
    assert _outcomes(served, "flaky-rerun-1", "--only") == [(0, 0, 1), (2, 0, 1)]
    again = served.run("rerun", "job/flaky-rerun-1", "--failed-only")
    assert again.stdout == "job.batch/flaky-rerun-1: nothing to rerun\n"


def test_rerun_of_running_job_prints_note(served: CommandLine) -> None:
    (served.home / "endless.yaml").write_text(job_yaml("endless", "sleep 600"))
    assert served.run("create", "-f", "endless.yaml").returncode == 0
    for words, does in (
        ((), "runs concurrently"),
        (["--failed-only"], "also runs its remaining indexes"),
    ):
        done = served.run("rerun", "job/endless", "--dry-run=client", *words)
        assert done.stdout == "job.batch/endless-rerun-1 created (client dry run)\n"
        assert done.stderr == (
            f"note: job.batch/endless has not finished: job.batch/endless-rerun-1 {does}\n"
        )


def test_results_omit_deleted_jobs(served: CommandLine) -> None:
    job = JOB.replace("name: flaky", "name: orphan, annotations: {onejob.dev/rerun-of-uid: gone, ")
    job = job.replace("gone, }", 'gone, onejob.dev/rerun-indexes: "3-6"}}')
    (served.home / "orphan.yaml").write_text(job)
    assert served.run("create", "-f", "orphan.yaml").returncode == 0
    assert served.run("wait", "job/orphan", "--timeout", "60s").returncode == 1
    assert [index for index, _, _ in _outcomes(served, "orphan")] == [3, 4, 5, 6]
    (line,) = served.run("results", "orphan").stderr.splitlines()
    assert line.startswith("note: results of an earlier Job (uid gone) are not shown")


def _outcomes(onejob: CommandLine, job: str, *words: str) -> list[tuple[int, int, int]]:
    """Return index, exit code and attempts of each result."""
    found = json.loads(onejob.run("results", job, "-o", "json", *words).stdout)
    return [(one["index"], one["exitCode"], one["attempts"]) for one in found]


@pytest.mark.parametrize("words", [("pod/x",), ("absent",), ("flaky", "--set", "x")])
def test_bad_usage_is_one_line(served: CommandLine, words: tuple[str, ...]) -> None:
    done = served.run("rerun", *words)
    assert done.returncode != 0
    assert len(done.stderr.splitlines()) == 1


def test_a_run_is_resumed(onejob: CommandLine) -> None:
    mark = onejob.home / "mended"
    (onejob.home / "settings.yaml").write_text(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {greeting: hello}\n"
    )
    command = (
        f'echo "$greeting $JOB_COMPLETION_INDEX"; test $JOB_COMPLETION_INDEX != 1 -o -e {mark}'
    )
    job = JOB.split("        command:")[0] + (
        f"        command: [sh, -c, {json.dumps(command)}]\n"
        "        envFrom: [{configMapRef: {name: settings}}]\n"
    )
    (onejob.home / "job.yaml").write_text(job)
    assert onejob.run("run", "settings.yaml", "job.yaml").returncode == 1
    mark.touch()
    done = onejob.run("run", "--resume", "flaky")
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if "hello" in line]
    assert [line.rpartition("] ")[2] for line in lines] == ["hello 1"]
    assert _outcomes(onejob, "flaky") == [(0, 0, 1), (1, 0, 2), (2, 0, 1), (3, 0, 1)]
    again = onejob.run("run", "--resume", "job/flaky")
    assert again.returncode == 0
    assert "has already succeeded" in again.stdout


def test_a_kept_run_is_run_again(onejob: CommandLine) -> None:
    values = ("--param", "n=1,2", "--name", "square", "-o", "raw")
    first = onejob.run("run", *values, "--", "sh", "-c", "echo $n; test $n != 2", "x", "{n}")
    assert first.returncode == 1, first.stderr
    (run,) = onejob.run("runs", "-o", "name").stdout.split()
    again = onejob.run("rerun", run)
    assert again.returncode == 1
    assert sorted(line[-3:] for line in again.stdout.splitlines() if "] " in line) == ["] 1", "] 2"]
    failed = onejob.run("rerun", run, "--failed-only", "--set", "n=3")
    assert failed.returncode == 0, failed.stderr
    assert [line[-3:] for line in failed.stdout.splitlines() if "] " in line] == ["] 3"]
    same = onejob.run("run", "--again", "square", "--set", "n=4", "-o", "raw")
    assert (same.returncode, same.stdout) == (0, "4\n")
    unknown = onejob.run("rerun", "run/1999")
    assert (unknown.returncode, unknown.stderr) == (
        2,
        "error: 1999: no run of the last 7 days has this ID or a Job of this name (onejob runs "
        "lists them)\n",
    )


@pytest.mark.parametrize("words", [("--again", "x", "--resume", "x"), ("--set", "a=1", "job.yaml")])
def test_bad_repetitions_are_one_line(onejob: CommandLine, words: tuple[str, ...]) -> None:
    done = onejob.run("run", *words)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)


@pytest.mark.parametrize("words", [("nothing",), ("x", "job.yaml"), ("x", "--", "true")])
def test_bad_resumes_are_one_line(onejob: CommandLine, words: tuple[str, ...]) -> None:
    done = onejob.run("run", "--resume", *words)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
