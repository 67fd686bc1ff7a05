"""Server with Jobs in every state, for tests and screenshots of the dashboard."""

from pathlib import Path
from typing import Any

import msgspec

from onejob.cli.known_kinds import KnownKinds
from onejob.cli.manifests.job_from_command import CommandJob, job_document
from onejob.cli.manifests.params import add_parameters
from onejob.cli.sources.base import ApiRequest, path_of
from onejob.cli.sources.discovery import discovered
from onejob.cli.sources.http_api import open_http_api
from onejob.testing import OnejobNamespace, OnejobServer
from onejob.wire.errors import AlreadyExists
from tests import build
from tests.build import shell

Document = dict[str, Any]


def a_job(name: str, script: str, **spec: Any) -> Document:
    labels = {"app": name.split("-")[0]}
    return build.a_job(name, shell(script, name="main"), metadata={"labels": labels}, **spec)


def a_cronjob(name: str, schedule: str, script: str, **spec: Any) -> Document:
    return build.a_cronjob(name, schedule, job=a_job(name, script)["spec"], **spec)


def a_definition(plural: str, kind: str, column: dict[str, str]) -> Document:
    """Return a CustomResourceDefinition with one column of its own, of integers."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "additionalPrinterColumns": [
            {"name": column["name"], "type": "integer", "jsonPath": column["path"]},
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        ],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind},
            "versions": [version],
        },
    }


def a_train(name: str, cars: int) -> Document:
    return {
        "apiVersion": "example.com/v1",
        "kind": "Train",
        "metadata": {"name": name, "labels": {"size": "long" if cars > 9 else "short"}},
        "spec": {"cars": cars},
    }


def a_task(name: str, script: str, *after: str, **more: Any) -> Document:
    """Return a task; `after` names dependencies, as `NAME` or `NAME:CONDITION`."""
    edges = [
        {"task": task, "condition": condition or "Complete"}
        for task, _, condition in (text.partition(":") for text in after)
    ]
    spec = {**a_job(name, script)["spec"], "backoffLimit": 0}
    template = {"template": {"spec": spec}}
    return {"name": name, **template, **({"dependsOn": edges} if edges else {}), **more}


def a_workflow(name: str, *tasks: Document, **spec: Any) -> Document:
    return {
        "apiVersion": "onejob.dev/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": name},
        "spec": {"tasks": list(tasks), **spec},
    }


def change(
    namespace: OnejobNamespace,
    document: Document,
    merge: Document,
    subresource: str = "",
    manager: str = "",
) -> None:
    """Apply a merge patch to an object."""
    api = open_http_api(namespace.kubeconfig, "")
    kind = KnownKinds(lambda: discovered(api)).find(document["apiVersion"], document["kind"])
    assert kind is not None
    metadata = document["metadata"]
    path = path_of(kind, metadata.get("namespace", ""), metadata["name"], subresource)
    body = msgspec.json.encode(merge)
    query = {"fieldManager": manager}
    api.send(
        ApiRequest("PATCH", path, query, body=body, content_type="application/merge-patch+json")
    )
    api.close()


def delete_pod(namespace: OnejobNamespace, name: str) -> None:
    api = open_http_api(namespace.kubeconfig, "")
    path = f"/api/v1/namespaces/{namespace.name}/pods/{name}"
    api.send(ApiRequest("DELETE", path))
    api.close()


def limits(namespace: OnejobNamespace, text: str) -> None:
    """Set the limits on running Jobs of the server."""
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "onejob-queues", "namespace": "kube-system"},
    }
    body = {**config_map, "data": {"limits": text}}
    api = open_http_api(namespace.kubeconfig, "")
    path = "/api/v1/namespaces/kube-system/configmaps"
    try:
        api.send(ApiRequest("POST", path, body=msgspec.json.encode(body)))
    except AlreadyExists:
        change(namespace, config_map, {"data": {"limits": text}})
    finally:
        api.close()


def sign_in_address(kubeconfig: Path, server: OnejobServer) -> str:
    """Return the address that `onejob ui --no-browser` prints."""
    api = open_http_api(kubeconfig, "")
    try:
        code = api.send(ApiRequest("POST", "/ui/api/codes")).document["code"]
    finally:
        api.close()
    return f"{server.url}/ui/#/sign-in/{code}"


def fill(namespace: OnejobNamespace) -> None:
    """Create the Jobs; wait for the ones that end soon."""
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


def sweep(namespace: OnejobNamespace, name: str = "sweep") -> None:
    """Create a sweep of four rows, of which the last fails; wait for its end."""
    rows = [{"seed": seed, "lr": 10 // (seed + 1)} for seed in range(4)]
    script = (
        'test "$seed" != 3 || { echo diverged; exit 3; }; '
        """echo "{\\"loss\\": $((9 - seed * 4))}" > "$ONEJOB_RESULT\""""
    )
    command = ("sh", "-c", script)
    job = job_document(CommandJob(command, name=name, parallelism=4, indexed=True, retries=0), {})
    namespace.create(add_parameters(job, rows, command))
    namespace.create(job)
    namespace.wait_for_job(name)


def fill_workflows(namespace: OnejobNamespace) -> None:
    """Create a workflow with tasks of all ends."""
    namespace.create(
        a_workflow(
            "training",
            a_task("extract", "echo extracted; sleep 1"),
            a_task("clean", "true", "extract"),
            a_task("features", "sleep 1", "extract"),
            a_task("train", "echo loss is NaN; exit 7", "clean", "features"),
            a_task("publish", "true", "train"),
            a_task("alert", "echo mail sent", "train:Failed"),
            **{"finally": [a_task("clean-up", "true")]},
        )
    )
