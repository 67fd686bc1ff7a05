"""Report of the container that made a Pod fail, not of one stopped because of it."""

import json
from datetime import UTC, datetime
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest

from onejob.dashboard.job_pods import failures_of, read_pod_view, row_of
from onejob.diagnosis.results import collect
from onejob.objects.pod import read_pod
from onejob.planning.job.pod_facts import failures_of_pod
from tests.cli.command_line import CommandLine

MANIFEST = """
apiVersion: batch/v1
kind: Job
metadata: {name: mixed}
spec:
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      initContainers:
      - name: sidecar
        image: busybox
        restartPolicy: Always
        command: [sh, -c, 'echo words of the sidecar; exec sleep 1000']
      containers:
      - name: main
        image: busybox
        command: [sh, -c, 'sleep 0.3; echo words of the main container; exit CODE']
"""


def end(name: str, code: int, second: int) -> dict[str, Any]:
    at = datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC).isoformat()
    return {"name": name, "state": {"terminated": {"exitCode": code, "finishedAt": at}}}


def pod_with(init: list[dict[str, Any]], containers: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "metadata": {"name": "p", "uid": "u"},
        "spec": {"initContainers": [{"name": "side", "restartPolicy": "Always"}, {"name": "init"}]},
        "status": {
            "phase": "Failed",
            "initContainerStatuses": init,
            "containerStatuses": containers,
        },
    }


@pytest.mark.parametrize(
    ("init", "containers", "expected"),
    [
        ([end("side", 143, 9)], [end("a", 3, 8)], ["a"]),
        ([end("side", 1, 1)], [end("a", 3, 8)], ["a"]),
        ([end("side", 143, 9)], [end("a", 0, 8)], []),
        ([end("side", 143, 9)], [], ["side"]),
        ([end("side", 143, 9), end("init", 4, 8)], [], ["init"]),
        ([], [end("a", 143, 9), end("b", 3, 8)], ["b", "a"]),
        ([], [end("a", 143, 8), end("b", 3, 8)], ["b", "a"]),
        ([], [end("a", 5, 8), end("b", 3, 8)], ["a", "b"]),
        ([], [end("a", 143, 7), end("b", 3, 8)], ["a", "b"]),
        ([], [end("a", 0, 7), end("b", 3, 8)], ["b"]),
    ],
)
def test_failures_of_pod_names_the_container_that_failed_first(
    init: list[dict[str, Any]], containers: list[dict[str, Any]], expected: list[str]
) -> None:
    document = msgspec.json.encode(pod_with(init, containers))
    assert [status.name for status in failures_of_pod(read_pod(document))] == expected


def test_dashboard_shows_the_exit_code_of_the_container_that_failed() -> None:
    pod = read_pod_view(msgspec.json.encode(pod_with([end("side", 143, 9)], [end("a", 3, 8)])))
    assert row_of(pod).exit_code == 3
    (failure,) = failures_of([pod])
    assert (failure.container, failure.exit_code) == ("a", 3)


def test_results_have_the_exit_code_of_the_container_that_failed_first() -> None:
    pod = pod_with([], [end("a", 143, 9), end("b", 3, 8)])
    (result,) = collect([pod], [])
    assert result.exit_code == 3


def test_run_reports_the_main_container_when_its_sidecar_was_stopped(onejob: CommandLine) -> None:
    (onejob.home / "job.yaml").write_text(MANIFEST.replace("CODE", "3"))
    done = onejob.run("run", "--exit-code", "--junit", "junit.xml", "-o", "json", "job.yaml")
    assert done.returncode == 3, done.stderr
    (failure,) = json.loads(done.stdout)["jobs"][0]["failedPods"]
    assert (failure["container"], failure["exitCode"]) == ("main", 3)
    summary = done.stderr[done.stderr.rindex("Failed pods") :]
    assert "words of the main container" in summary
    assert "words of the sidecar" not in summary
    report = ElementTree.parse(onejob.home / "junit.xml").find(".//failure")
    assert report is not None
    text = f"{report.attrib} {report.text}"
    assert "143" not in text
    assert "words of the main container" in text
    why = onejob.run("why", "job/mixed").stdout
    assert "container main exited with code 3" in why
    assert "143" not in why


def test_run_reports_no_exit_code_of_a_sidecar_when_its_pod_succeeded(onejob: CommandLine) -> None:
    (onejob.home / "job.yaml").write_text(MANIFEST.replace("CODE", "0"))
    done = onejob.run("run", "-o", "json", "job.yaml")
    assert done.returncode == 0, done.stderr
    (pod,) = json.loads(done.stdout)["jobs"][0]["slowestPods"]
    assert (pod["container"], pod["exitCode"]) == ("main", 0)
