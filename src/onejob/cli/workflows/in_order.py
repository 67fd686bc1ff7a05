"""Jobs of `onejob run --in-order`: a workflow in which each Job depends on the one before."""

from collections.abc import Sequence
from typing import Any, Final

from onejob.cli.errors import CommandError
from onejob.cli.manifests.loading import Manifest, manifest_from_document
from onejob.objects.meta import JOBS, WORKFLOWS
from onejob.objects.workflow import API_VERSION

#: Characters of the workflow's name; the names of its Jobs begin with it.
_MAX_NAME: Final = 20


def one_after_another(manifests: Sequence[Manifest], namespace: str) -> list[Manifest]:
    """Return the manifests with one workflow in place of their Jobs, in the order given.

    Raises CommandError.
    """
    jobs = [manifest for manifest in manifests if manifest.kind.resource == JOBS]
    if any(manifest.kind.resource == WORKFLOWS for manifest in manifests):
        raise CommandError(
            "--in-order supports only Jobs", "a Workflow states the order in its dependsOn"
        )
    if len(jobs) < 2:
        raise CommandError("--in-order requires at least two Jobs", "specify their files in order")
    spaces = list(dict.fromkeys(_metadata(job).get("namespace") or namespace for job in jobs))
    if len(spaces) > 1:
        raise CommandError(
            f"--in-order: the Jobs are in several namespaces: {', '.join(spaces)}",
            "put them into one",
        )
    others = [manifest for manifest in manifests if manifest.kind.resource != JOBS]
    return [*others, manifest_from_document(_workflow(jobs, spaces[0]), number=len(others) + 1)]


def _workflow(jobs: Sequence[Manifest], namespace: str) -> dict[str, Any]:
    names: list[str] = []
    tasks = []
    for job in jobs:
        name = _task_name(job, names)
        metadata = {
            field: _metadata(job)[field]
            for field in ("labels", "annotations")
            if _metadata(job).get(field)
        }
        template: dict[str, Any] = {"spec": job.document["spec"]}
        if metadata:
            template["metadata"] = metadata
        task: dict[str, Any] = {"name": name, "template": template}
        if names:
            task["dependsOn"] = [{"task": names[-1]}]
        names.append(name)
        tasks.append(task)
    return {
        "apiVersion": API_VERSION,
        "kind": "Workflow",
        "metadata": {"name": _workflow_name(names), "namespace": namespace},
        "spec": {"tasks": tasks},
    }


def _workflow_name(names: Sequence[str]) -> str:
    """Return a short name that tells one chain from another."""
    return f"{names[0]}-to-{names[-1]}"[:_MAX_NAME].rstrip("-")


def _task_name(job: Manifest, taken: Sequence[str]) -> str:
    metadata = _metadata(job)
    name = str(metadata.get("name") or metadata["generateName"]).replace(".", "-").rstrip("-")
    if name in taken:
        raise CommandError(f"--in-order: two Jobs are named {name}", "use different names")
    return name


def _metadata(job: Manifest) -> dict[str, Any]:
    metadata: dict[str, Any] = job.document["metadata"]
    return metadata
