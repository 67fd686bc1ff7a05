"""Jobs of `onejob run --in-order`: each waits for the one before (`onejob.dev/after`)."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from onejob.cli.errors import CommandError
from onejob.cli.manifests.loading import Manifest
from onejob.objects.meta import JOBS, WORKFLOWS
from onejob.planning.names import AFTER_ANNOTATION


def one_after_another(manifests: Sequence[Manifest], namespace: str) -> list[Manifest]:
    """Return the manifests, in which each Job depends on the one before. Raises CommandError."""
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
    ordered = []
    before = ""
    for manifest in manifests:
        if manifest.kind.resource != JOBS:
            ordered.append(manifest)
            continue
        ordered.append(_after(manifest, before) if before else manifest)
        before = manifest.name
        if not before and manifest is not jobs[-1]:
            raise CommandError(
                f"--in-order: {_metadata(manifest).get('generateName', '')}... has no name",
                "set metadata.name: the next Job waits for that name",
            )
    return ordered


def _after(job: Manifest, before: str) -> Manifest:
    metadata = _metadata(job)
    annotations = dict(metadata.get("annotations") or {})
    own = annotations.get(AFTER_ANNOTATION)
    annotations[AFTER_ANNOTATION] = f"{own},{before}" if own else before
    document = {**job.document, "metadata": {**metadata, "annotations": annotations}}
    return replace(job, document=document)


def _metadata(job: Manifest) -> dict[str, Any]:
    metadata: dict[str, Any] = job.document["metadata"]
    return metadata
