"""Remote copy of a mirrored Job, and its synchronization with the local Job."""

from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any, Final, NamedTuple

import msgspec

from onejob.planning.mirror import names
from onejob.planning.mirror.annotations import CopyLocation
from onejob.planning.names import LAST_APPLIED

Document = dict[str, Any]

#: Labels that the API server generates into a Job's template; the remote server generates its own.
_GENERATED_LABELS: Final = (
    "batch.kubernetes.io/controller-uid",
    "batch.kubernetes.io/job-name",
    "controller-uid",
    "job-name",
)
#: Annotations of the local Job that have no meaning on the remote cluster.
_OWN_ANNOTATIONS: Final = (
    names.TARGET,
    names.NAMESPACE,
    names.COPY_CONFIG,
    names.LOST_AFTER,
    names.WHEN_COPY_DELETED,
    names.RECORD,
    LAST_APPLIED,
)
#: Spec fields that may change while a Job exists. The first group has defaults: a field absent here
#: may be present there.
_DEFAULTED: Final = (
    "parallelism", "completions", "suspend", "backoffLimit", "podReplacementPolicy",
)  # fmt: skip
_OPTIONAL: Final = ("activeDeadlineSeconds", "maxFailedIndexes")


def copy_of(job: Document, record: CopyLocation) -> Document:
    """Return the copy to create, suspended and without a TTL.

    It may start only once its UID is recorded here, and its outcome must be observed from here
    before it is deleted.
    """
    metadata, spec = job["metadata"], dict(job["spec"])
    for field in ("managedBy", "ttlSecondsAfterFinished"):
        spec.pop(field, None)
    manual = spec.get("manualSelector") is True
    if not manual:
        spec.pop("selector", None)
        spec.pop("manualSelector", None)
    spec["template"] = _copy_template(spec["template"], metadata["uid"], manual=manual)
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


def _copy_template(template: Document, origin: str, *, manual: bool) -> Document:
    """Return the template of the copy, labelled with the Job's UID."""
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
    template = _copy_template(job["spec"]["template"], job["metadata"]["uid"], manual=manual)
    return sha256(msgspec.json.encode(template, order="sorted")).hexdigest()[:32]


def needed_spec(copy: Document) -> Document:
    """Return the spec without defaults that match the behaviour of servers unaware of the field."""
    spec = dict(copy["spec"])
    if spec.get("podReplacementPolicy") == "TerminatingOrFailed":
        del spec["podReplacementPolicy"]
    return spec


def dropped_fields(sent: Any, stored: Any, path: str = "spec") -> Iterator[str]:
    """Yield the paths of fields that a server dropped from `sent` as unsupported.

    Empty and zero values carry no information, and may be omitted by the server.
    """
    if isinstance(sent, dict) and isinstance(stored, dict):
        for name, value in sent.items():
            if name in stored:
                yield from dropped_fields(value, stored[name], f"{path}.{name}")
            elif value not in (None, "", 0, False, {}, []):
                yield f"{path}.{name}"
    elif isinstance(sent, list) and isinstance(stored, list) and len(sent) == len(stored):
        for position, (one, other) in enumerate(zip(sent, stored, strict=True)):
            yield from dropped_fields(one, other, f"{path}[{position}]")


class FieldChange(NamedTuple):
    field: str
    old: Any
    new: Any

    def __str__(self) -> str:
        if self.field == "template":
            return "a new template"
        return f"{self.field} {_format_value(self.new)} (was {_format_value(self.old)})"


def _format_value(value: Any) -> str:
    return (
        "unset" if value is None else str(value).lower() if value in (True, False) else str(value)
    )


def changes(job: Document, copy: Document) -> list[FieldChange]:
    """Return the changes to apply to the copy's spec.

    A template can be changed only while the Job is suspended, on both sides.
    """
    here, there = job["spec"], copy["spec"]
    wanted = [(field, here[field]) for field in _DEFAULTED if field in here]
    if "suspend" not in here:
        wanted.append(("suspend", False))
    wanted += [(field, here.get(field)) for field in _OPTIONAL]
    found = [
        FieldChange(field, there.get(field), value)
        for field, value in wanted
        if not _equal_meaning(field, there.get(field), value)
    ]
    digest = template_digest(job)
    given = copy["metadata"].get("annotations", {}).get(names.TEMPLATE_DIGEST, digest)
    if given != digest and there.get("suspend") is True:
        found.append(FieldChange("template", None, digest))
    return found


def _equal_meaning(field: str, there: Any, here: Any) -> bool:
    """Return whether a field has the same meaning on both sides."""
    if field == "suspend":
        return bool(there) == bool(here)
    if field == "podReplacementPolicy" and there is None:
        # Not supported there; any value but the default was rejected before the copy was started.
        return True
    return bool(there == here)


def changed_copy(job: Document, copy: Document, what: list[FieldChange]) -> Document:
    """Return the updated copy.

    It keeps UID and resourceVersion, so that no other object is changed.
    """
    spec, metadata = dict(copy["spec"]), dict(copy["metadata"])
    metadata.pop("managedFields", None)
    for field, _, value in what:
        if field == "template":
            spec[field] = _updated_template(job, copy)
            metadata["annotations"] = {
                **metadata.get("annotations", {}),
                names.TEMPLATE_DIGEST: value,
            }
        elif value is None:
            spec.pop(field, None)
        else:
            spec[field] = value
    return {**copy, "metadata": metadata, "spec": spec}


def _updated_template(job: Document, copy: Document) -> Document:
    """Return the Job's template with the labels that the remote server generated."""
    manual = job["spec"].get("manualSelector") is True
    template = _copy_template(job["spec"]["template"], job["metadata"]["uid"], manual=manual)
    there = copy["spec"]["template"].get("metadata", {}).get("labels", {})
    generated = {label: there[label] for label in _GENERATED_LABELS if label in there}
    metadata = template["metadata"]
    labels = {**metadata["labels"], **(generated if not manual else {})}
    return {**template, "metadata": {**metadata, "labels": labels}}


class ConfigRef(NamedTuple):
    """ConfigMap or Secret referenced by a template."""

    #: `configmaps` or `secrets`
    resource: str
    name: str
    optional: bool


def named_config(template: Mapping[str, Any]) -> list[ConfigRef]:
    """Return each reference once; it is optional only if all its uses are."""
    needed: dict[tuple[str, str], bool] = {}
    for resource, name, optional in _config_references(template.get("spec", {})):
        if name:
            key = (resource, name)
            needed[key] = needed.get(key, False) or not optional
    return [ConfigRef(*key, optional=not need) for key, need in needed.items()]


def _config_references(spec: Mapping[str, Any]) -> Iterator[tuple[str, str, bool]]:
    """Yield (resource, name, optional) of each use of a ConfigMap or Secret."""
    for secret in spec.get("imagePullSecrets", ()):
        yield "secrets", secret.get("name", ""), True
    for volume in spec.get("volumes", ()):
        yield from _volume_references(volume, secret_name="secretName")
        for source in volume.get("projected", {}).get("sources", ()):
            yield from _volume_references(source, secret_name="name")
    for field in ("initContainers", "containers"):
        for container in spec.get(field, ()):
            for variable in container.get("env", ()):
                yield from _env_references(variable.get("valueFrom", {}), "KeyRef")
            for source in container.get("envFrom", ()):
                yield from _env_references(source, "Ref")


def _volume_references(
    volume: Mapping[str, Any], *, secret_name: str
) -> Iterator[tuple[str, str, bool]]:
    if (config := volume.get("configMap")) is not None:
        yield "configmaps", config.get("name", ""), bool(config.get("optional"))
    if (secret := volume.get("secret")) is not None:
        yield "secrets", secret.get(secret_name, ""), bool(secret.get("optional"))


def _env_references(source: Mapping[str, Any], ending: str) -> Iterator[tuple[str, str, bool]]:
    for field, resource in (("configMap", "configmaps"), ("secret", "secrets")):
        if (selected := source.get(field + ending)) is not None:
            yield resource, selected.get("name", ""), bool(selected.get("optional"))


def config_copy(document: Document, namespace: str, copy: Document) -> Document:
    """Return a ConfigMap or Secret for the remote cluster.

    It is deleted with the last copy that uses it.
    """
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
