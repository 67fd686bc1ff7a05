"""Metadata validation for all kinds, on create and on update."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from onejob.api.strategy import Document
from onejob.wire.field_errors import FieldError, forbidden, invalid, required
from onejob.wire.labels import validate_annotations, validate_labels
from onejob.wire.names import as_prefix, label_errors, qualified_name_errors

NameRule: TypeAlias = Callable[[str], list[str]]

#: Metadata fields that are validated on update.
_LOOKED_AT: Final = (
    "name", "namespace", "labels", "annotations", "ownerReferences", "finalizers",
)  # fmt: skip

#: Finalizers without a domain that are always allowed.
_STANDARD_FINALIZERS: Final = frozenset({"kubernetes", "orphan", "foregroundDeletion"})


def validate_metadata(
    metadata: Mapping[str, Any],
    name_rule: NameRule,
    *,
    namespaced: bool,
    any_finalizer: bool = False,
) -> list[FieldError]:
    """Validate the metadata of a new object.

    `any_finalizer`: finalizers need no domain, as for custom resources.
    """
    errors: list[FieldError] = []
    prefix = metadata.get("generateName", "")
    if prefix and (texts := name_rule(as_prefix(prefix))):
        errors += [invalid("metadata.generateName", prefix, text) for text in texts]
    name = metadata.get("name", "")
    if not name:
        errors.append(required("metadata.name", "name or generateName is required"))
    elif texts := name_rule(name):
        errors += [invalid("metadata.name", name, text) for text in texts]
    errors += _validate_namespace(metadata.get("namespace", ""), namespaced)
    return errors + _validate_common(metadata, any_finalizer)


def validate_metadata_update(
    new: Document, old: Document, *, any_finalizer: bool = False
) -> list[FieldError]:
    """Validate changed metadata.

    Names and unchanged fields are not validated again, because they were accepted before.
    """
    metadata, stored = new.get("metadata", {}), old.get("metadata", {})
    if metadata is stored:
        return []
    touched = [field for field in _LOOKED_AT if metadata.get(field) is not stored.get(field)]
    if not touched:
        return []
    errors = [
        invalid(f"metadata.{field}", metadata.get(field, ""), "field is immutable")
        for field in ("name", "namespace")
        if field in touched and metadata.get(field, "") != stored.get(field, "")
    ]
    changed = {field: metadata[field] for field in touched if field in metadata}
    return errors + _validate_common(changed, any_finalizer)


def _validate_namespace(namespace: str, namespaced: bool) -> list[FieldError]:
    path = "metadata.namespace"
    if not namespaced:
        return [forbidden(path, "not allowed on this type")] if namespace else []
    if not namespace:
        return [required(path)]
    return [invalid(path, namespace, text) for text in label_errors(namespace)]


def validate_metadata_fields(metadata: Mapping[str, Any], path: str) -> list[FieldError]:
    """Validate labels and annotations of an embedded object."""
    errors: list[FieldError] = []
    if labels := metadata.get("labels"):
        errors += validate_labels(labels, f"{path}.labels")
    if annotations := metadata.get("annotations"):
        errors += validate_annotations(annotations, f"{path}.annotations")
    return errors


def _validate_common(metadata: Mapping[str, Any], any_finalizer: bool) -> list[FieldError]:
    errors = validate_metadata_fields(metadata, "metadata")
    if owners := metadata.get("ownerReferences"):
        errors += _validate_owners(owners)
    if finalizers := metadata.get("finalizers"):
        errors += _validate_finalizers(finalizers, any_finalizer)
    return errors


_OWNER_NEEDS: Final = ("kind", "name", "uid")


def _validate_owners(owners: Sequence[Mapping[str, Any]]) -> list[FieldError]:
    errors: list[FieldError] = []
    controller = None
    for i, owner in enumerate(owners):
        path = f"metadata.ownerReferences[{i}]"
        version = owner.get("apiVersion", "")
        if not version:
            errors.append(required(f"{path}.apiVersion", "must not be empty"))
        elif not version.rpartition("/")[2]:
            errors.append(invalid(f"{path}.apiVersion", version, "version must not be empty"))
        if not all(map(owner.get, _OWNER_NEEDS)):
            errors += [
                required(f"{path}.{field}", "must not be empty")
                for field in _OWNER_NEEDS
                if not owner.get(field)
            ]
        if (version, owner.get("kind")) == ("v1", "Event"):
            text = "/v1, Kind=Event is disallowed from being an owner"
            errors.append(invalid(path, dict(owner), text))
        if not owner.get("controller"):
            continue
        title = f"{owner.get('kind', '')}/{owner.get('name', '')}"
        if controller is not None:
            errors.append(
                invalid(
                    "metadata.ownerReferences",
                    owners,
                    "Only one reference can have Controller set to true. "
                    f'Found "true" in references for {controller} and {title}',
                )
            )
        else:
            controller = title
    return errors


def _validate_finalizers(finalizers: Sequence[str], any_finalizer: bool) -> list[FieldError]:
    errors = []
    orphan = foreground = False
    for i, finalizer in enumerate(finalizers):
        path = f"metadata.finalizers[{i}]"
        if texts := qualified_name_errors(finalizer):
            errors += [invalid(path, finalizer, text) for text in texts]
        if "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS and not any_finalizer:
            errors.append(
                invalid(
                    path,
                    finalizer,
                    "name is neither a standard finalizer name nor is it fully qualified",
                )
            )
        orphan |= finalizer == "orphan"
        foreground |= finalizer == "foregroundDeletion"
    if orphan and foreground:
        errors.append(
            invalid(
                "metadata.finalizers",
                finalizers,
                "finalizer orphan and foregroundDeletion cannot be both set",
            )
        )
    return errors
