"""The copy of a Job on the remote side, and how it is kept in step with the Job here."""

from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any, Final, NamedTuple

import msgspec

from onejob.planning.mirror import names
from onejob.planning.mirror.wishes import Record
from onejob.planning.names import LAST_APPLIED

Document = dict[str, Any]

#: What the API server generates into templates of Jobs: the remote one has its own.
_GENERATED_LABELS: Final = (
    "batch.kubernetes.io/controller-uid",
    "batch.kubernetes.io/job-name",
    "controller-uid",
    "job-name",
)
#: Annotations of the Job here that mean nothing there.
_OWN_ANNOTATIONS: Final = (
    names.TARGET,
    names.NAMESPACE,
    names.COPY_CONFIG,
    names.LOST_AFTER,
    names.WHEN_COPY_DELETED,
    names.RECORD,
    LAST_APPLIED,
)
#: Fields of the spec that may change while a Job exists. Of these the first ones have defaults:
#: absent here may be present there.
_DEFAULTED: Final = (
    "parallelism", "completions", "suspend", "backoffLimit", "podReplacementPolicy",
)  # fmt: skip
_OPTIONAL: Final = ("activeDeadlineSeconds", "maxFailedIndexes")


def copy_of(job: Document, record: Record) -> Document:
    """Suspended: it may start once its UID is on record here. Without a TTL: what happened must be
    seen from here before it goes."""
    metadata, spec = job["metadata"], dict(job["spec"])
    for field in ("managedBy", "ttlSecondsAfterFinished"):
        spec.pop(field, None)
    manual = spec.get("manualSelector") is True
    if not manual:
        spec.pop("selector", None)
        spec.pop("manualSelector", None)
    spec["template"] = _template(spec["template"], metadata["uid"], manual=manual)
    spec["suspend"] = True
    annotations = {
        name: text
        for name, text in metadata.get("annotations", {}).items()
        if name not in _OWN_ANNOTATIONS
    }
    annotations[names.COPY_OF] = f"{metadata['namespace']}/{metadata['name']}"
    annotations[names.TEMPLATE_DIGEST] = template_digest(job)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": record.name,
            "namespace": record.namespace,
            "labels": {**metadata.get("labels", {}), names.ORIGIN: metadata["uid"]},
            "annotations": annotations,
        },
        "spec": spec,
    }


def _template(template: Document, origin: str, *, manual: bool) -> Document:
    metadata = dict(template.get("metadata", {}))
    labels = dict(metadata.get("labels", {}))
    if not manual:
        for label in _GENERATED_LABELS:
            labels.pop(label, None)
    labels[names.ORIGIN] = origin
    metadata["labels"] = labels
    metadata.pop("creationTimestamp", None)
    return {**template, "metadata": metadata}


def template_digest(job: Document) -> str:
    manual = job["spec"].get("manualSelector") is True
    template = _template(job["spec"]["template"], job["metadata"]["uid"], manual=manual)
    return sha256(msgspec.json.encode(template, order="sorted")).hexdigest()[:32]


def needed_spec(copy: Document) -> Document:
    """The spec without defaults that say what servers which do not know the field do anyway."""
    spec = dict(copy["spec"])
    if spec.get("podReplacementPolicy") == "TerminatingOrFailed":
        del spec["podReplacementPolicy"]
    return spec


def dropped_fields(sent: Any, stored: Any, path: str = "spec") -> Iterator[str]:
    """What a server did not keep of what it was sent: it does not know those fields. Values that
    are empty or zero say nothing, and may be left out."""
    if isinstance(sent, dict) and isinstance(stored, dict):
        for name, value in sent.items():
            if name in stored:
                yield from dropped_fields(value, stored[name], f"{path}.{name}")
            elif value not in (None, "", 0, False, {}, []):
                yield f"{path}.{name}"
    elif isinstance(sent, list) and isinstance(stored, list) and len(sent) == len(stored):
        for position, (one, other) in enumerate(zip(sent, stored, strict=True)):
            yield from dropped_fields(one, other, f"{path}[{position}]")


class Change(NamedTuple):
    field: str
    old: Any
    new: Any

    def __str__(self) -> str:
        if self.field == "template":
            return "a new template"
        return f"{self.field} {_shown(self.new)} (was {_shown(self.old)})"


def _shown(value: Any) -> str:
    return (
        "unset" if value is None else str(value).lower() if value in (True, False) else str(value)
    )


def changes(job: Document, copy: Document) -> list[Change]:
    """What must be changed in the spec of the copy. A template can only be changed while the Job
    is suspended, here as well as there."""
    here, there = job["spec"], copy["spec"]
    wanted = [(field, here[field]) for field in _DEFAULTED if field in here]
    if "suspend" not in here:
        wanted.append(("suspend", False))
    wanted += [(field, here.get(field)) for field in _OPTIONAL]
    found = [
        Change(field, there.get(field), value)
        for field, value in wanted
        if not _same(field, there.get(field), value)
    ]
    digest = template_digest(job)
    given = copy["metadata"].get("annotations", {}).get(names.TEMPLATE_DIGEST, digest)
    if given != digest and there.get("suspend") is True:
        found.append(Change("template", None, digest))
    return found


def _same(field: str, there: Any, here: Any) -> bool:
    if field == "suspend":
        return bool(there) == bool(here)
    if field == "podReplacementPolicy" and there is None:
        # Not known there; anything but the default was refused before the copy was started.
        return True
    return bool(there == here)


def changed_copy(job: Document, copy: Document, what: list[Change]) -> Document:
    """The copy as it shall be; with its UID and resourceVersion, so that no other is changed."""
    spec, metadata = dict(copy["spec"]), dict(copy["metadata"])
    metadata.pop("managedFields", None)
    for field, _, value in what:
        if field == "template":
            spec[field] = _with_generated_labels(job, copy)
            metadata["annotations"] = {
                **metadata.get("annotations", {}),
                names.TEMPLATE_DIGEST: value,
            }
        elif value is None:
            spec.pop(field, None)
        else:
            spec[field] = value
    return {**copy, "metadata": metadata, "spec": spec}


def _with_generated_labels(job: Document, copy: Document) -> Document:
    manual = job["spec"].get("manualSelector") is True
    template = _template(job["spec"]["template"], job["metadata"]["uid"], manual=manual)
    there = copy["spec"]["template"].get("metadata", {}).get("labels", {})
    generated = {label: there[label] for label in _GENERATED_LABELS if label in there}
    metadata = template["metadata"]
    labels = {**metadata["labels"], **(generated if not manual else {})}
    return {**template, "metadata": {**metadata, "labels": labels}}


class ConfigRef(NamedTuple):
    """A ConfigMap or Secret that a template names."""

    #: `configmaps` or `secrets`
    resource: str
    name: str
    optional: bool


def named_config(template: Mapping[str, Any]) -> list[ConfigRef]:
    """Each once; one that is needed somewhere is not optional."""
    needed: dict[tuple[str, str], bool] = {}
    for resource, name, optional in _references(template.get("spec", {})):
        if name:
            key = (resource, name)
            needed[key] = needed.get(key, False) or not optional
    return [ConfigRef(*key, optional=not need) for key, need in needed.items()]


def _references(spec: Mapping[str, Any]) -> Iterator[tuple[str, str, bool]]:
    for secret in spec.get("imagePullSecrets", ()):
        yield "secrets", secret.get("name", ""), True
    for volume in spec.get("volumes", ()):
        yield from _sources(volume, secret_name="secretName")
        for source in volume.get("projected", {}).get("sources", ()):
            yield from _sources(source, secret_name="name")
    for field in ("initContainers", "containers"):
        for container in spec.get(field, ()):
            for variable in container.get("env", ()):
                yield from _selected(variable.get("valueFrom", {}), "KeyRef")
            for source in container.get("envFrom", ()):
                yield from _selected(source, "Ref")


def _sources(volume: Mapping[str, Any], *, secret_name: str) -> Iterator[tuple[str, str, bool]]:
    if (config := volume.get("configMap")) is not None:
        yield "configmaps", config.get("name", ""), bool(config.get("optional"))
    if (secret := volume.get("secret")) is not None:
        yield "secrets", secret.get(secret_name, ""), bool(secret.get("optional"))


def _selected(source: Mapping[str, Any], ending: str) -> Iterator[tuple[str, str, bool]]:
    for field, resource in (("configMap", "configmaps"), ("secret", "secrets")):
        if (selected := source.get(field + ending)) is not None:
            yield resource, selected.get("name", ""), bool(selected.get("optional"))


def config_copy(document: Document, namespace: str, copy: Document) -> Document:
    """A ConfigMap or Secret for the remote side. It goes with the last copy that uses it."""
    kept = ("apiVersion", "kind", "data", "binaryData", "type", "immutable")
    return {
        **{field: document[field] for field in kept if field in document},
        "metadata": {
            "name": document["metadata"]["name"],
            "namespace": namespace,
            "labels": {names.COPIED_FROM: document["metadata"]["uid"]},
            "ownerReferences": [owner_reference(copy)],
        },
    }


def owner_reference(copy: Document) -> Document:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": copy["metadata"]["name"],
        "uid": copy["metadata"]["uid"],
    }
