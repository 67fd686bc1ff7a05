"""Rare states of Jobs, for screenshots of the dashboard."""

from typing import Any

from onejob.testing import OnejobNamespace
from tests.ui.demo import a_cronjob, a_definition, a_job, a_train, change, limits

LONG_NAME = "reconcile-the-invoices-of-all-customers-of-northern-regions"
_INDEXES = 10_000


def fill_states(namespace: OnejobNamespace) -> None:
    """Create the Jobs; wait for the failing ones."""
    indexed = {"completionMode": "Indexed"}
    three = (
        'case "$JOB_COMPLETION_INDEX" in '
        '0) echo "cannot open /data/orders.csv: no such file" >&2; exit 2;; '
        # Two of four remain: `$$` is an escaped dollar.
        "1) echo allocating; kill -9 $$$$;; "
        "*) echo 'quota of the bucket is used up' > /dev/termination-log; exit 75;; esac"
    )
    mixed = a_job("three-causes", three, completions=3, backoffLimitPerIndex=0, **indexed)
    mixed["spec"]["parallelism"] = 3
    init = a_job("init-fails", "echo never", backoffLimit=0)
    init["spec"]["template"]["spec"]["initContainers"] = [
        {"name": "fetch", "image": "busybox", "command": ["sh", "-c", "echo no route; exit 4"]}
    ]
    long = a_job(LONG_NAME, "sleep 600", completions=12, parallelism=3, **indexed)
    long["metadata"]["labels"]["example.com/a-label-with-a-long-name"] = (
        "and-a-long-value-" + "x" * 40
    )
    failed = (mixed, init)
    retried = a_job("retries-an-index", "exit 9", backoffLimitPerIndex=5, completions=4, **indexed)
    for job in (*failed, long, retried, _reported_by_others()):
        namespace.create(job)
    limits(namespace, "gpu=1")
    for name in ("gpu-first", "gpu-second"):
        job = a_job(name, "sleep 600")
        job["metadata"]["labels"]["onejob.dev/queue"] = "gpu"
        namespace.create(job)
    sleepy = a_cronjob("skips", "@every 2s", "sleep 600", concurrencyPolicy="Forbid")
    namespace.create(sleepy)
    namespace.create(a_cronjob("every-minute", "* * * * *", "true", timeZone="Asia/Kolkata"))
    namespace.create(a_definition("trains", "Train", {"name": "Cars", "path": ".spec.cars"}))
    for number in range(3):
        namespace.create(a_train(f"train-{number}", 5 * number + 1))
    for job in failed:
        namespace.wait_for_job(job["metadata"]["name"])


def _reported_by_others() -> dict[str, Any]:
    """Return a Job of many indexes, for which no Pods need to run here."""
    return a_job(
        "many-indexes", "true", completions=_INDEXES, parallelism=50, completionMode="Indexed",
        managedBy="example.com/elsewhere", backoffLimitPerIndex=1,
    )  # fmt: skip


def report_indexes(namespace: OnejobNamespace) -> None:
    job = namespace.get("job", "many-indexes")
    status = {
        "startTime": job["metadata"]["creationTimestamp"],
        "active": 50,
        "ready": 50,
        "succeeded": 6171,
        "failed": 31,
        "completedIndexes": "0-2999,3002-5000,5003-6174",
        "failedIndexes": "3000,3001,5001,5002",
        "uncountedTerminatedPods": {},
    }
    change(namespace, job, {"status": status}, "status")
