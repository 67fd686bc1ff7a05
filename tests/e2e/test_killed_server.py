"""Repeated kills of the server in the middle of a Job: nothing is lost, nothing runs twice."""

import json
import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from onejob.clock import SystemClock
from tests.e2e.serving import Server, a_server, needs_kubectl

pytestmark = needs_kubectl

JOB = """
apiVersion: batch/v1
kind: Job
metadata: {{name: work}}
spec:
  completions: 12
  parallelism: 3
  completionMode: {mode}
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: main
        image: busybox
        command: [sh, -c, 'echo $HOSTNAME >> /out/begun; sleep 0.5; echo $HOSTNAME >> /out/ended']
        volumeMounts: [{{name: out, mountPath: /out}}]
      volumes:
      - {{name: out, hostPath: {{path: {out}, type: DirectoryOrCreate}}}}
"""


def lines(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


def until(what: str, holds: Callable[[], object]) -> None:
    give_up = time.monotonic() + 180
    while not holds():
        assert time.monotonic() < give_up, f"waited in vain for {what}"
        time.sleep(0.01)


def fetch(server: Server, *what: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(server.kubectl("get", *what, "-o", "json"))
    return found


@pytest.mark.parametrize("mode", ["Indexed", "NonIndexed"])
def test_every_completion_happens_exactly_once(tmp_path: Path, mode: str) -> None:
    out = tmp_path / "out"
    with a_server(tmp_path / "state") as server:
        server.kubectl("create", "-f", "-", stdin=JOB.format(mode=mode, out=out))
        for ended in (1, 4, 7, 10):
            until(f"{ended} ended", lambda ended=ended: len(lines(out / "ended")) >= ended)  # type: ignore[misc]
            server.kill()
            server.start()
        server.kubectl("wait", "--for=condition=complete", "job/work", "--timeout=120s")
        job = fetch(server, "job", "work")
        pods = fetch(server, "pods", "-l", "job-name=work")["items"]
    assert job["status"]["succeeded"] == 12
    assert "failed" not in job["status"]
    assert job["status"]["uncountedTerminatedPods"] == {}
    assert len(pods) == 12
    assert {pod["status"]["phase"] for pod in pods} == {"Succeeded"}
    assert not any(pod["metadata"].get("finalizers") for pod in pods)
    assert len(lines(out / "begun")) == 12
    assert Counter(lines(out / "begun")) == Counter(lines(out / "ended"))
    if mode == "Indexed":
        assert job["status"]["completedIndexes"] == "0-11"
        assert set(lines(out / "begun")) == {f"work-{index}" for index in range(12)}


def test_pods_ended_during_downtime_are_counted_correctly(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with a_server(tmp_path / "state") as server:
        server.kubectl("create", "-f", "-", stdin=JOB.format(mode="Indexed", out=out))
        until("the first three", lambda: len(lines(out / "begun")) == 3)
        server.kill()
        until("their end", lambda: len(lines(out / "ended")) == 3)
        server.start()
        server.kubectl("wait", "--for=condition=complete", "job/work", "--timeout=120s")
        job = fetch(server, "job", "work")
    assert job["status"]["succeeded"] == 12
    assert "failed" not in job["status"]
    assert len(lines(out / "begun")) == 12


CRON_JOB = """
apiVersion: batch/v1
kind: CronJob
metadata: {name: tick}
spec:
  schedule: "* * * * *"
  jobTemplate:
    spec:
      template:
        spec:
          restartPolicy: Never
          containers: [{name: main, image: busybox, command: ["true"]}]
"""


@pytest.mark.slow_spec
def test_last_missed_slot_is_started_after_downtime(tmp_path: Path) -> None:
    clock = SystemClock()
    with a_server(tmp_path / "state") as server:
        server.kubectl("create", "-f", "-", stdin=CRON_JOB)
        made_at = clock.now()
        server.kill()
        missed = made_at.replace(second=0, microsecond=0) + timedelta(minutes=2)
        until("two minutes to pass", lambda: clock.now() > missed + timedelta(seconds=2))
        server.start()
        until("a Job", lambda: fetch(server, "jobs")["items"])
        (job,) = fetch(server, "jobs")["items"]
        assert job["metadata"]["name"] == f"tick-{int(missed.timestamp()) // 60}"
        status = fetch(server, "cronjob", "tick")["status"]
        assert status["lastScheduleTime"] == missed.strftime("%Y-%m-%dT%H:%M:%SZ")
