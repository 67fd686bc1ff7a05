"""Builders of Job, CronJob and Pod documents.

`metadata` adds fields to the metadata, further keywords those of the spec. A module that needs the
same special fields in many tests defines its own function in terms of these.
"""

from typing import Any

import msgspec

from onejob.client.base import Create
from onejob.objects.meta import CRONJOBS, JOBS, PODS, WORKFLOWS

Document = dict[str, Any]

_RESOURCES = {"CronJob": CRONJOBS, "Job": JOBS, "Pod": PODS, "Workflow": WORKFLOWS}


def container(*command: str, **fields: Any) -> Document:
    """Return a container that succeeds at once, unless a command is given."""
    return {"name": "c", "image": "busybox", "command": list(command) or ["true"], **fields}


def shell(script: str, **fields: Any) -> Document:
    """Return a container that runs a shell script."""
    return container("sh", "-c", script, **fields)


def template(*containers: Document, metadata: Document | None = None, **spec: Any) -> Document:
    """Return a Pod template that never restarts its containers."""
    pod = {"restartPolicy": "Never", "containers": list(containers) or [container()], **spec}
    return {"spec": pod} if metadata is None else {"metadata": metadata, "spec": pod}


def a_pod(
    name: str = "p", *containers: Document, metadata: Document | None = None, **spec: Any
) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **(metadata or {})},
        **template(*containers, **spec),
    }


def a_job(
    name: str = "j",
    *containers: Document,
    metadata: Document | None = None,
    **spec: Any,
) -> Document:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, **(metadata or {})},
        # A template in `spec` replaces this one; short fields come first, as in most manifests.
        "spec": {**spec, "template": spec.get("template", template(*containers))},
    }


def a_cronjob(
    name: str = "c",
    schedule: str = "* * * * *",
    *,
    metadata: Document | None = None,
    job: Document | None = None,
    **spec: Any,
) -> Document:
    """Return a CronJob; `job` is the spec of its Jobs."""
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": name, **(metadata or {})},
        "spec": {
            "schedule": schedule,
            "jobTemplate": {"spec": {"template": template()} if job is None else job},
            **spec,
        },
    }


def creation(document: Document, namespace: str = "default") -> Create:
    """Return the write that creates the object."""
    return Create(_RESOURCES[document["kind"]], namespace, msgspec.json.encode(document))


def a_task(name: str, *depends_on: str, job: Document | None = None, **fields: Any) -> Document:
    """Return a task of a workflow. An edge is written `extract` or `extract:Finished`."""
    edges = []
    for text in depends_on:
        task, _, condition = text.partition(":")
        edges.append({"task": task, **({"condition": condition} if condition else {})})
    spec = {"template": template(), **(job or {})}
    return {
        "name": name,
        "template": {"spec": spec},
        **({"dependsOn": edges} if edges else {}),
        **fields,
    }


def a_workflow(
    name: str, *tasks: Document, metadata: Document | None = None, **spec: Any
) -> Document:
    return {
        "apiVersion": "onejob.dev/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": name, **(metadata or {})},
        "spec": {"tasks": list(tasks), **spec},
    }
