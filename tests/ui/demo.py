"""A server with Jobs in every state, for tests and pictures of the dashboard."""

from pathlib import Path
from typing import Any

from onejob.cli.clients.base import Ask
from onejob.cli.clients.http_api import open_http_api
from onejob.testing import OnejobNamespace, OnejobServer

Document = dict[str, Any]


def a_job(name: str, script: str, **spec: Any) -> Document:
    container = {"name": "main", "image": "busybox", "command": ["sh", "-c", script]}
    pods = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": {"app": name.split("-")[0]}},
        "spec": {**spec, "template": pods},
    }


def a_cronjob(name: str, schedule: str, script: str, **spec: Any) -> Document:
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": name},
        "spec": {
            "schedule": schedule,
            **spec,
            "jobTemplate": {"spec": a_job(name, script)["spec"]},
        },
    }


def sign_in_address(kubeconfig: Path, server: OnejobServer) -> str:
    """What `onejob ui --no-browser` prints."""
    api = open_http_api(kubeconfig, "")
    try:
        code = api.send(Ask("POST", "/ui/api/codes")).document["code"]
    finally:
        api.close()
    return f"{server.url}/ui/#/sign-in/{code}"


def fill(namespace: OnejobNamespace) -> None:
    """Jobs that end soon are waited for."""
    echo = 'for i in 1 2 3; do echo "step $i of index $JOB_COMPLETION_INDEX"; done'
    indexed = {"completionMode": "Indexed"}
    done = [
        a_job("report", "echo 12 rows written", completions=3, parallelism=3),
        a_job("thumbnails", echo, completions=24, parallelism=8, **indexed),
    ]
    failed = [
        a_job(
            "import-orders",
            'echo "reading orders.csv"; echo "line 17: no such customer" >&2; exit 2',
            backoffLimit=1,
            backoffSeconds=0,
        ),
        a_job(
            "train",
            '[ "$JOB_COMPLETION_INDEX" != 3 ] || { echo "loss is NaN"; exit 7; }',
            completions=12,
            parallelism=6,
            backoffLimitPerIndex=0,
            **indexed,
        ),
    ]
    long = 'n=0; while :; do n=$((n+1)); echo "$(hostname) tile $n rendered"; sleep 0.5; done'
    running = [
        a_job("render", long, completions=40, parallelism=4, **indexed),
        a_job("crawl-news", "exit 3", backoffLimit=8, backoffSeconds=600),
        a_job("paused", "sleep 60", suspend=True, completions=5),
    ]
    for job in (*done, *failed, *running):
        namespace.create(job)
    namespace.create(
        a_cronjob("nightly-backup", "30 2 * * *", "echo saved", timeZone="Europe/Berlin")
    )
    namespace.create(a_cronjob("heartbeat", "*/5 * * * *", "true", suspend=True))
    for job in (*done, *failed):
        namespace.wait_for_job(job["metadata"]["name"])
