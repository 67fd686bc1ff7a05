"""CustomResourceDefinition validation with upstream's messages. Pure functions.

`schema_checks` validates the schemas of a CRD.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from onejob.api.crd.schema_checks import check_schema, check_selectable_fields
from onejob.api.kinds.webhook_addresses import client_errors, review_version_errors
from onejob.api.strategy import Document
from onejob.wire.field_errors import (
    OMITTED,
    FieldError,
    forbidden,
    invalid,
    not_supported,
    required,
)
from onejob.wire.names import dns_1035_errors, subdomain_errors

_COLUMN_TYPES: Final = "boolean,date,integer,number,string"
_COLUMN_FORMATS: Final = (
    "byte", "date", "date-time", "double", "float", "int32", "int64", "password",
)  # fmt: skip
_APPROVAL: Final = "api-approved.kubernetes.io"
_MAX_WARNING_LENGTH: Final = 256


def check_definition(doc: Document, old: Document | None = None) -> list[FieldError]:
    """Return the errors of a CRD, except those in metadata that apply to every kind."""
    spec = doc.get("spec") or {}
    names = spec.get("names") or {}
    errors: list[FieldError] = []
    wanted = f"{names.get('plural', '')}.{spec.get('group', '')}"
    name = doc["metadata"].get("name", "")
    if old is None and name != wanted:
        text = 'must be spec.names.plural+"."+spec.group'
        errors.append(invalid("metadata.name", name, text))
    errors += _check_spec(spec, old)
    if old is not None:
        errors += _check_unchanged(spec, old)
    errors += _check_stored_versions(doc, spec)
    errors += _check_approval(doc, old)
    if spec.get("preserveUnknownFields"):
        text = (
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in "
            "spec.versions[*].schema instead"
        )
        errors.append(invalid("spec.preserveUnknownFields", True, text))
    return errors


def _check_spec(spec: Mapping[str, Any], old: Document | None) -> Iterator[FieldError]:
    group = spec.get("group", "")
    if not group:
        yield required("spec.group")
    elif problems := subdomain_errors(group):
        yield invalid("spec.group", group, ",".join(problems))
    elif "." not in group:
        yield invalid("spec.group", group, "should be a domain with at least one dot")
    scope = spec.get("scope", "")
    if not scope:
        yield required("spec.scope")
    elif scope not in ("Cluster", "Namespaced"):
        yield not_supported("spec.scope", scope, ["Cluster", "Namespaced"])
    versions = spec.get("versions") or []
    for index, version in enumerate(versions):
        if not (version.get("schema") or {}).get("openAPIV3Schema"):
            yield required(f"spec.versions[{index}].schema.openAPIV3Schema")
    yield from _check_versions(versions, _schemas_by_version(old))
    listed = [version.get("name") for version in versions]
    if len(set(listed)) != len(listed):
        yield invalid("spec.versions", OMITTED, "must contain unique version names")
    if sum(bool(version.get("storage")) for version in versions) != 1:
        text = "must have exactly one version marked as storage version"
        yield invalid("spec.versions", OMITTED, text)
    first = listed[0] or "" if listed else ""
    if first and (problems := dns_1035_errors(first)):
        # As upstream, the first version's name is also checked under this path.
        yield invalid("spec.version", first, ",".join(problems))
    names = spec.get("names") or {}
    for field in ("plural", "singular", "kind", "listKind"):
        if not names.get(field):
            yield required(f"spec.names.{field}")
    yield from check_names(names, "spec.names")
    yield from _check_conversion(spec.get("conversion") or {})


def _schemas_by_version(old: Document | None) -> Mapping[str, Any]:
    versions = ((old or {}).get("spec") or {}).get("versions") or ()
    return {version["name"]: version.get("schema") for version in versions}


def _check_versions(
    versions: Sequence[Mapping[str, Any]], before: Mapping[str, Any]
) -> Iterator[FieldError]:
    for index, version in enumerate(versions):
        path = f"spec.versions[{index}]"
        name = version.get("name", "")
        if problems := dns_1035_errors(name):
            yield invalid(f"{path}.name", name, ",".join(problems))
        yield from _check_deprecation(version, f"{path}.deprecationWarning")
    with_status = [
        (version.get("subresources") or {}).get("status") is not None for version in versions
    ]
    for place, schema, which in _values_by_version(versions, "schema", "spec.validation"):
        if not (schema or {}).get("openAPIV3Schema"):
            continue
        yield from check_schema(
            schema["openAPIV3Schema"],
            f"{place}.openAPIV3Schema",
            has_status=any(with_status) if which is None else with_status[which],
            unchanged=before.get(versions[which or 0].get("name", "")) == schema,
        )
    for place, subresources, _ in _values_by_version(versions, "subresources", "spec.subresources"):
        yield from _check_scale((subresources or {}).get("scale"), f"{place}.scale")
    columns_of = "additionalPrinterColumns"
    for place, columns, _ in _values_by_version(versions, columns_of, f"spec.{columns_of}"):
        for number, column in enumerate(columns or ()):
            yield from _check_column(column, f"{place}[{number}]")
    for place, fields, which in _values_by_version(
        versions, "selectableFields", "spec.selectableFields"
    ):
        schema = (versions[which or 0].get("schema") or {}).get("openAPIV3Schema")
        yield from check_selectable_fields(fields or (), schema or {}, place)


def _values_by_version(
    versions: Sequence[Mapping[str, Any]], field: str, shared: str
) -> Iterator[tuple[str, Any, int | None]]:
    """Yield (path, value, index of the version) for each version.

    If all versions have the same value, yield it once, with the path `shared` and no index:
    upstream stores it outside the versions, and its errors name that path.
    """
    values = [version.get(field) for version in versions]
    if values and all(value == values[0] for value in values):
        yield shared, values[0], None
        return
    for index, value in enumerate(values):
        yield f"spec.versions[{index}].{field}", value, index


def _check_deprecation(version: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    text = version.get("deprecationWarning")
    if text is None:
        return
    if not version.get("deprecated"):
        yield invalid(path, text, "can only be set for deprecated versions")
    if len(text) > _MAX_WARNING_LENGTH:
        yield invalid(path, text, f"must be <= {_MAX_WARNING_LENGTH} characters long")
    if not text:
        yield invalid(path, text, "must not be an empty string")
    odd = next((index for index, char in enumerate(text) if not char.isprintable()), None)
    if odd is not None:
        yield invalid(
            path,
            text,
            "must only contain printable UTF-8 characters; non-printable character found at "
            f"index {odd}",
        )


def _check_scale(scale: Mapping[str, Any] | None, path: str) -> Iterator[FieldError]:
    if scale is None:
        return
    for field, root in (("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")):
        given = scale.get(field, "")
        if not given:
            yield required(f"{path}.{field}")
        elif not given.startswith("."):
            yield invalid(f"{path}.{field}", given, "must be a simple json path starting with .")
        elif not given.startswith(root):
            yield invalid(f"{path}.{field}", given, f"should be a json path under {root[:-1]}")
    labels = scale.get("labelSelectorPath") or ""
    if labels and not labels.startswith((".spec.", ".status.")):
        text = "should be a json path under either .spec or .status"
        yield invalid(f"{path}.labelSelectorPath", labels, text)


def _check_column(column: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    if not column.get("name"):
        yield required(f"{path}.name")
    kind = column.get("type", "")
    if not kind:
        yield required(f"{path}.type", f"must be one of {_COLUMN_TYPES}")
    elif kind not in _COLUMN_TYPES.split(","):
        yield invalid(f"{path}.type", kind, f"must be one of {_COLUMN_TYPES}")
    form = column.get("format", "")
    if form and form not in _COLUMN_FORMATS:
        yield invalid(f"{path}.format", form, f"must be one of {','.join(_COLUMN_FORMATS)}")
    source = column.get("jsonPath", "")
    if not source:
        yield required(f"{path}.JSONPath")
    elif not source.startswith("."):
        yield invalid(f"{path}.JSONPath", source, "must be a simple json path starting with .")


def check_names(names: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    for field in ("plural", "singular"):
        given = names.get(field, "")
        if given and (problems := dns_1035_errors(given)):
            yield invalid(f"{path}.{field}", given, ",".join(problems))
    for field in ("kind", "listKind"):
        given = names.get(field, "")
        if given and (problems := dns_1035_errors(given.lower())):
            text = "may have mixed case, but should otherwise match: " + ",".join(problems)
            yield invalid(f"{path}.{field}", given, text)
    yield from _check_labels(names.get("shortNames") or (), f"{path}.shortNames")
    if names.get("kind") and names["kind"] == names.get("listKind"):
        text = "kind and listKind may not be the same"
        yield invalid(f"{path}.listKind", names["listKind"], text)
    yield from _check_labels(names.get("categories") or (), f"{path}.categories")


def _check_labels(texts: Sequence[str], path: str) -> Iterator[FieldError]:
    for index, text in enumerate(texts):
        if problems := dns_1035_errors(text):
            yield invalid(f"{path}[{index}]", text, ",".join(problems))


def _check_conversion(conversion: Mapping[str, Any]) -> Iterator[FieldError]:
    path = "spec.conversion"
    strategy = conversion.get("strategy", "")
    webhook = conversion.get("webhook") or {}
    if not strategy:
        yield required(f"{path}.strategy")
    elif strategy not in ("None", "Webhook"):
        yield not_supported(f"{path}.strategy", strategy, ["None", "Webhook"])
    if strategy != "Webhook":
        text = "should not be set when strategy is not set to Webhook"
        if webhook.get("clientConfig"):
            yield forbidden(f"{path}.webhookClientConfig", text)
        if webhook.get("conversionReviewVersions"):
            yield forbidden(f"{path}.conversionReviewVersions", text)
        return
    client = webhook.get("clientConfig")
    if client is None:
        yield required(f"{path}.webhookClientConfig", "required when strategy is set to Webhook")
    else:
        yield from client_errors(client, f"{path}.webhookClientConfig")
    reviews = webhook.get("conversionReviewVersions") or []
    yield from review_version_errors(reviews, f"{path}.conversionReviewVersions")


def _check_unchanged(spec: Mapping[str, Any], old: Document) -> Iterator[FieldError]:
    before = old.get("spec") or {}
    names, names_before = spec.get("names") or {}, before.get("names") or {}
    pairs = [
        ("spec.group", spec.get("group"), before.get("group")),
        ("spec.names.plural", names.get("plural"), names_before.get("plural")),
    ]
    if is_true(old, "Established"):
        pairs += [
            ("spec.scope", spec.get("scope"), before.get("scope")),
            ("spec.names.kind", names.get("kind"), names_before.get("kind")),
        ]
    for path, value, previous in pairs:
        if value != previous:
            yield invalid(path, value, "field is immutable")


def is_true(doc: Document, condition: str) -> bool:
    conditions = (doc.get("status") or {}).get("conditions") or ()
    return any(
        entry.get("type") == condition and entry.get("status") == "True" for entry in conditions
    )


def _check_stored_versions(doc: Document, spec: Mapping[str, Any]) -> Iterator[FieldError]:
    path = "status.storedVersions"
    stored: list[str] = list((doc.get("status") or {}).get("storedVersions") or ())
    if not stored:
        yield invalid(path, None, "must have at least one stored version")
        return
    versions = spec.get("versions") or ()
    for version in versions:
        if version.get("storage") and version.get("name") not in stored:
            yield invalid(path, stored, f"must have the storage version {version.get('name')}")
    known = {version.get("name") for version in versions}
    for index, name in enumerate(stored):
        if name not in known:
            yield invalid(
                f"{path}[{index}]",
                name,
                f"missing from spec.versions; {name} was previously a storage version, and must "
                "remain in spec.versions until a storage migration ensures no data remains "
                f"persisted in {name} and removes {name} from status.storedVersions",
            )


def _check_approval(doc: Document, old: Document | None) -> Iterator[FieldError]:
    group = (doc.get("spec") or {}).get("group", "")
    if not is_protected(group):
        return
    given = (doc["metadata"].get("annotations") or {}).get(_APPROVAL)
    if old is not None and (old["metadata"].get("annotations") or {}).get(_APPROVAL) == given:
        return
    path = f"metadata.annotations[{_APPROVAL}]"
    if not given:
        yield required(
            path,
            f'protected groups must have approval annotation "{_APPROVAL}", see '
            "https://github.com/kubernetes/enhancements/pull/1111",
        )
    elif not given.startswith(("https://", "http://", "unapproved")):
        yield invalid(
            path,
            given,
            f'protected groups must have approval annotation "{_APPROVAL}" with either a URL or a '
            'reason starting with "unapproved", see '
            "https://github.com/kubernetes/enhancements/pull/1111",
        )


def is_protected(group: str) -> bool:
    return group in ("k8s.io", "kubernetes.io") or group.endswith((".k8s.io", ".kubernetes.io"))
