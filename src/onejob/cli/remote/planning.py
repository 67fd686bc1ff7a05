"""Objects that a remote run creates, and the reasons why its cluster would not run them. Pure."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from onejob.cli.errors import CommandError
from onejob.cli.manifests.loading import Manifest, Problem
from onejob.cli.manifests.portability import portability_problems
from onejob.cli.run.plan import PREREQUISITES, PlannedObject, server_problems
from onejob.cluster.permissions import AccessReview, Need
from onejob.gates import FeatureGates
from onejob.objects.meta import EVENTS, JOBS, NAMESPACES, PODS
from onejob.wire.kinds import BY_RESOURCE

#: Label of all objects and Pods of a run; its value is the ID of the run.
RUN_LABEL: Final = "onejob.dev/run"
_CREATED: Final = (*PREREQUISITES, JOBS)


class RemoteObject(msgspec.Struct, frozen=True):
    planned: PlannedObject
    manifest: Manifest


def plan_objects(
    manifests: Sequence[Manifest], namespace: str, gates: FeatureGates, now: datetime
) -> tuple[list[RemoteObject], list[Problem]]:
    """Return the objects in the order of creation, Jobs last, and the problems of all manifests.

    Namespaces are created only if a manifest contains them. Raises CommandError without a Job.
    """
    problems: list[Problem] = []
    objects: list[RemoteObject] = []
    for manifest in manifests:
        found = server_problems(manifest, namespace, gates, now)
        problems += found or portability_problems(manifest)
        if manifest.kind.resource not in _CREATED:
            problems.append(
                manifest.problem("kind", f"run --on does not create a {manifest.kind.kind}")
            )
            continue
        metadata = manifest.document.get("metadata")
        own = metadata.get("namespace") if isinstance(metadata, dict) else ""
        where = str(own or namespace) if manifest.kind.namespaced else ""
        planned = PlannedObject(manifest.kind.resource, where, manifest.document)
        objects.append(RemoteObject(planned, manifest))
    if not problems and not any(item.planned.resource == JOBS for item in objects):
        raise CommandError("no Job to run", "add a Job, or use kubectl apply")
    objects.sort(key=lambda item: _CREATED.index(item.planned.resource))
    return objects, problems


def marked(planned: PlannedObject, run_id: str, ttl_seconds: int | None) -> dict[str, Any]:
    """Return the document to create, with the label of the run and the retention of the Job."""
    document = planned.document
    if planned.resource == NAMESPACES:
        return document
    document = _labelled(document, run_id)
    if planned.resource != JOBS:
        return document
    spec = dict(document["spec"])
    spec["template"] = _labelled(spec["template"], run_id)
    if ttl_seconds is not None:
        spec["ttlSecondsAfterFinished"] = ttl_seconds
    return {**document, "spec": spec}


def _labelled(document: Mapping[str, Any], run_id: str) -> dict[str, Any]:
    metadata = dict(document.get("metadata") or {})
    metadata["labels"] = {**(metadata.get("labels") or {}), RUN_LABEL: run_id}
    return {**document, "metadata": metadata}


def needed_access(
    objects: Sequence[RemoteObject], *, cleans_up: bool, suspends: bool
) -> list[AccessReview]:
    """Return the permissions that the run needs, from its creation to its end."""
    reviews: dict[tuple[str, str, str], AccessReview] = {}
    for item in objects:
        resource, namespace = item.planned.resource, item.planned.namespace
        verbs = ["create"]
        if resource == JOBS:
            verbs += ["list", "watch", "delete", *(["patch"] if suspends else [])]
            _add(reviews, PODS, namespace, ("list", "watch"))
            _add(reviews, PODS, namespace, ("get",), "log")
            _add(reviews, EVENTS, namespace, ("list", "watch"))
        elif resource != NAMESPACES:
            verbs += ["list", "delete", *(["patch"] if cleans_up else [])]
        _add(reviews, resource, namespace, verbs)
    return list(reviews.values())


def _add(
    reviews: dict[tuple[str, str, str], AccessReview],
    resource: str,
    namespace: str,
    verbs: Sequence[str],
    subresource: str = "",
) -> None:
    kind = BY_RESOURCE[resource]
    for verb in verbs:
        need = Need(kind.group, kind.plural, (verb,), subresource)
        reviews[f"{kind.group}/{need.path}", verb, namespace] = AccessReview(need, verb, namespace)


def same_content(wanted: Mapping[str, Any], existing: Mapping[str, Any]) -> bool:
    """Return whether an existing object has the content of the manifest, metadata aside."""
    fields = {**wanted}
    if text := fields.pop("stringData", None):
        import base64

        encoded = {name: base64.b64encode(str(v).encode()).decode() for name, v in text.items()}
        fields["data"] = {**(fields.get("data") or {}), **encoded}
    return all(
        (existing.get(name) or {}) == (value or {})
        for name, value in fields.items()
        if name not in ("apiVersion", "kind", "metadata", "status")
    )
