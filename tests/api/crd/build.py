"""CustomResourceDefinitions for tests."""

from typing import Any

NAME = "widgets.example.com"
PATH = "/apis/example.com/v1/namespaces/default/widgets"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def text(**more: Any) -> dict[str, Any]:
    return {"type": "string", **more}


def thing(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, **more}


def a_version(
    spec: dict[str, Any] | None = None, *, name: str = "v1", storage: bool = True, **more: Any
) -> dict[str, Any]:
    """Return one version of a definition; `spec` is the schema of the field of that name."""
    status = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    properties = {"spec": spec if spec is not None else {"type": "object"}, "status": status}
    schema = thing(properties, **more.pop("root", {}))
    return {
        "name": name, "served": True, "storage": storage,
        "schema": {"openAPIV3Schema": schema}, **more,
    }  # fmt: skip


def a_definition(*versions: dict[str, Any], **spec: Any) -> dict[str, Any]:
    names = {"plural": "widgets", "kind": "Widget", **spec.pop("names", {})}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names['plural']}.{spec.get('group', 'example.com')}"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": names,
            "versions": list(versions) or [a_version()], **spec,
        },
    }  # fmt: skip


def widget(name: str = "a", version: str = "v1", **more: Any) -> dict[str, Any]:
    metadata = {"name": name, **more.pop("metadata", {})}
    return {"apiVersion": f"example.com/{version}", "kind": "Widget", "metadata": metadata, **more}
