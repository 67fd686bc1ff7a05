"""Requests and events shared by HTTP tests."""

import json

from onejob.objects.meta import Key
from onejob.wire.requests import WatchEvent

JOBS = "/apis/batch/v1/namespaces/default/jobs"


def job(name: str, filler: int = 0) -> bytes:
    document = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default", "resourceVersion": "5"},
        "spec": {"filler": "x" * filler},
    }
    return json.dumps(document, separators=(",", ":")).encode()


def added(name: str) -> WatchEvent:
    return WatchEvent("ADDED", Key("jobs.batch", "default", name), 5, job(name))
