"""CustomResourceDefinitions of onejob's own kinds, generated from the schema that it serves."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from onejob.api.schema.schema import load_definitions
from onejob.wire.kinds import BY_RESOURCE, Kind

Document = dict[str, Any]

_RESOURCES: Final = ("workflows.onejob.dev", "cronworkflows.onejob.dev")
_OWN: Final = "dev.onejob.v1alpha1."
_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1."
#: Types with a special JSON representation.
_SPECIAL: Final[Mapping[str, Document]] = {
    f"{_META}Time": {"type": "string", "format": "date-time"},
    f"{_META}MicroTime": {"type": "string", "format": "date-time"},
    f"{_META}ObjectMeta": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    f"{_META}FieldsV1": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {"x-kubernetes-int-or-string": True},
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {"x-kubernetes-int-or-string": True},
}
_KEPT: Final = (
    "type",
    "format",
    "default",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
)
_LIST_TYPE: Final = "x-kubernetes-list-type"
_LIST_KEYS: Final = "x-kubernetes-list-map-keys"
#: Columns of `kubectl get`: name, type and path. Age is added by Kubernetes only without others.
_COLUMNS: Final[Mapping[str, Sequence[tuple[str, str, str]]]] = {
    "Workflow": (
        ("Status", "string", '.status.conditions[?(@.status=="True")].type'),
        ("Complete", "integer", ".status.complete"),
        ("Running", "integer", ".status.running"),
        ("Failed", "integer", ".status.failed"),
        ("Age", "date", ".metadata.creationTimestamp"),
    ),
    "CronWorkflow": (
        ("Schedule", "string", ".spec.schedule"),
        ("Timezone", "string", ".spec.timeZone"),
        ("Suspend", "boolean", ".spec.suspend"),
        ("Last Schedule", "date", ".status.lastScheduleTime"),
        ("Age", "date", ".metadata.creationTimestamp"),
    ),
}


def definitions() -> Sequence[Document]:
    """Return the definitions of Workflow and CronWorkflow.

    The API server of a cluster checks types, required fields and unique names with them; the rest
    is checked by the controller, which fails an invalid workflow.
    """
    return [_definition(BY_RESOURCE[resource]) for resource in _RESOURCES]


def _definition(kind: Kind) -> Document:
    shapes, documentation = load_definitions()
    schema = _schema(f"{_OWN}{kind.kind}", shapes, documentation)
    # Everything else of the metadata is the API server's own.
    schema["properties"]["metadata"] = {"type": "object"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": kind.resource},
        "spec": {
            "group": kind.group,
            "scope": "Namespaced",
            "names": {
                "kind": kind.kind,
                "listKind": kind.list_kind,
                "plural": kind.plural,
                "singular": kind.singular,
                "shortNames": list(kind.short_names),
                "categories": list(kind.categories),
            },
            "versions": [
                {
                    "name": kind.version,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [
                        {"name": name, "type": type_, "jsonPath": path}
                        for name, type_, path in _COLUMNS[kind.kind]
                    ],
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


def _schema(
    name: str, shapes: Mapping[str, Any], documentation: Mapping[str, Mapping[str, str]]
) -> Document:
    """Return the structural schema of a definition. Only our own fields are described: with all of
    Kubernetes', each definition would have half a megabyte."""
    if name in _SPECIAL:
        return dict(_SPECIAL[name])
    shape = shapes[name]
    found: Document = {key: shape[key] for key in _KEPT if key in shape}
    texts = documentation[name] if name.startswith(_OWN) else {}
    if texts.get(""):
        found["description"] = texts[""]
    if "properties" in shape:
        found["properties"] = {
            field: _property(field, prop, texts, shapes, documentation)
            for field, prop in shape["properties"].items()
        }
    required = [field for field in shape.get("required", ()) if field in found["properties"]]
    if required:
        found["required"] = required
    return found


def _property(
    field: str,
    prop: Mapping[str, Any],
    texts: Mapping[str, str],
    shapes: Mapping[str, Any],
    documentation: Mapping[str, Mapping[str, str]],
) -> Document:
    found = _value(prop, shapes, documentation)
    if texts.get(field):
        found["description"] = texts[field]
    return found


def _value(
    prop: Mapping[str, Any],
    shapes: Mapping[str, Any],
    documentation: Mapping[str, Mapping[str, str]],
) -> Document:
    if "$ref" in prop:
        return _schema(prop["$ref"], shapes, documentation)
    found: Document = {key: prop[key] for key in _KEPT if key in prop}
    for key in ("items", "additionalProperties"):
        if key in prop:
            found[key] = _value(prop[key], shapes, documentation)
    if found.get(_LIST_TYPE) == "map" and not _has_keys(found):
        # Kubernetes' own types may leave a key out; those of definitions may not.
        del found[_LIST_TYPE], found[_LIST_KEYS]
    return found


def _has_keys(prop: Mapping[str, Any]) -> bool:
    items = prop.get("items", {})
    return all(
        key in items.get("required", ()) or "default" in items.get("properties", {}).get(key, {})
        for key in prop[_LIST_KEYS]
    )
