"""Custom resources: invalid definitions, rules and objects."""

import asyncio
from typing import Any, Final

from tests.differential.registry import scenario
from tests.differential.side import Document, NotReached, Side

_DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_GROUP: Final = "differential.example.com"
_MERGE: Final = {"Content-Type": "application/merge-patch+json"}
_TEXT: Final = {"type": "string"}

Schema = dict[str, Any]


def _thing(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties}


def _definition(plural: str, *versions: Document, **spec: Any) -> Document:
    kind = plural.capitalize().removesuffix("s")
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{_GROUP}"},
        "spec": {
            "group": _GROUP, "scope": "Namespaced", "names": names, "versions": list(versions),
            **spec,
        },
    }  # fmt: skip


def _version(schema: Schema, name: str = "v1", *, storage: bool = True, **more: Any) -> Document:
    return {
        "name": name, "served": True, "storage": storage,
        "schema": {"openAPIV3Schema": schema}, **more,
    }  # fmt: skip


async def _try(it: Side, definition: Document) -> None:
    await it.ask("POST", _DEFINITIONS, definition, query={"dryRun": "All"})


@scenario
async def schemas_that_cannot_be(it: Side) -> None:
    keyed = {"type": "array", "x-kubernetes-list-type": "map", "items": _thing(k=_TEXT)}
    for schema in (
        {},
        {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        {**_TEXT, "allOf": [{**_TEXT, "description": "x", "default": "a"}]},
        {"type": "object", "properties": {"b": _TEXT}, "additionalProperties": _TEXT},
        {"type": "array"},
        {"type": "array", "items": [_TEXT]},
        {"type": "null"},
        {"$ref": "#/definitions/x"},
        {**_TEXT, "pattern": "(?=a)b"},
        {**_TEXT, "pattern": "a{2000}"},
        {**_TEXT, "pattern": "^(a+)+$"},
        {**_TEXT, "default": 3},
        {**_thing(b=_TEXT), "default": {"b": 1}},
        {**_thing(b=_TEXT), "default": {"c": "d"}},
        {**_TEXT, "enum": ["x"], "default": "y"},
        {**_TEXT, "format": "bogus"},
        keyed,
        {**keyed, "x-kubernetes-list-map-keys": ["k"]},
        {**keyed, "x-kubernetes-list-map-keys": ["z"]},
        {"type": "array", "x-kubernetes-list-type": "set", "items": _thing()},
        {"type": "object", "x-kubernetes-embedded-resource": True},
        {**_thing(), "oneOf": [{"properties": {"b": {"minLength": 1}}}]},
    ):
        await _try(it, _definition("schemas", _version(_thing(a=schema))))


@scenario
async def definitions_that_cannot_be(it: Side) -> None:
    plain = _version(_thing())
    scale = {"specReplicasPath": "spec.x", "statusReplicasPath": ".spec.y"}
    column = {"name": "A", "type": "strin", "format": "uri", "jsonPath": "spec"}
    fields = [{"jsonPath": path} for path in (".spec.b", "spec", "", ".metadata.name")]
    for definition in (
        _definition("bads", plain, scope="Galaxy"),
        _definition("bads", plain, group="x.k8s.io"),
        _definition("bads", plain, conversion={"strategy": "Webhook"}),
        _definition("bads", plain, preserveUnknownFields=True),
        _definition("bads", _version(_thing(), "1v")),
        _definition("bads", {**plain, "subresources": {"scale": scale}}),
        _definition("bads", {**plain, "additionalPrinterColumns": [column]}),
        _definition("bads", {**plain, "selectableFields": fields}),
        _definition("bads", plain, _version(_thing(a={"type": "x"}), "v2", storage=False)),
        _definition("bads", {**plain, "deprecationWarning": "x"}),
    ):
        await _try(it, definition)


@scenario
async def rules_that_cannot_be(it: Side) -> None:
    for rule, more in (
        ("self =", {}),
        ("self + 'x'", {}),
        ("self.foo == 1", {}),
        ("other == 'x'", {}),
        ("self > 3", {}),
        ("self.matches('(')", {}),
        ("  ", {}),
        ("self == 'a'", {"message": "a\nb"}),
        ("self == 'a'", {"messageExpression": "1"}),
        ("self == 'a'", {"reason": "Bogus"}),
        ("self == 'a'", {"fieldPath": ".b"}),
        ("self == 'a'", {"optionalOldSelf": True}),
        ("!" * 301 + "(self == 'a')", {}),
    ):
        schema = {**_TEXT, "maxLength": 9}
        rules = [{"rule": rule, **more}]
        await _try(
            it,
            _definition("rules", _version(_thing(a={**schema, "x-kubernetes-validations": rules}))),
        )
    rules = [{"rule": "self == 'a'"}]
    schema = {**_TEXT, "maxLength": 9, "default": "b", "x-kubernetes-validations": rules}
    await _try(it, _definition("rules", _version(_thing(a=schema))))
    dear = [{"rule": "self.all(a, self.all(b, self.all(c, a == b && b == c)))"}]
    schema = {"type": "array", "items": _TEXT, "x-kubernetes-validations": dear}
    await _try(it, _definition("rules", _version(_thing(a=schema))))


_SPEC: Final = {
    **_thing(
        s={**_TEXT, "minLength": 2, "maxLength": 4, "pattern": "^a+$"},
        i={"type": "integer", "format": "int32", "minimum": 1},
        e={**_TEXT, "enum": ["x", "y"]},
        l={"type": "array", "maxItems": 1, "items": _TEXT},
        m={
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "items": {**_thing(k=_TEXT), "required": ["k"]},
        },
        o={**_thing(a=_TEXT, b=_TEXT), "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
        n={"type": "number"},
        r={
            **_thing(least={"type": "integer"}, most={"type": "integer"}),
            "x-kubernetes-validations": [
                {"rule": "self.least <= self.most", "message": "wrong way round",
                 "fieldPath": ".least", "reason": "FieldValueForbidden"},
            ],
        },
        x={
            "type": "object", "x-kubernetes-embedded-resource": True,
            "x-kubernetes-preserve-unknown-fields": True,
        },
    ),
    "required": ["s"],
}  # fmt: skip


async def _until_served(it: Side, path: str) -> None:
    for _ in range(150):
        if (await it.send("GET", path)).code == 200:
            return
        await asyncio.sleep(0.2)
    raise NotReached(f"{path} is not served")


@scenario
async def objects_that_cannot_be(it: Side) -> None:
    version = _version(_thing(spec=_SPEC), subresources={"status": {}})
    await it.ask("POST", _DEFINITIONS, _definition("objects", version))
    path = f"/apis/{_GROUP}/v1/namespaces/{it.namespace}/objects"
    await _until_served(it, path)
    body = {"apiVersion": f"{_GROUP}/v1", "kind": "Object", "metadata": {"name": "a"}}
    specs: list[Any] = [{}, {"s": 3}, {"s": "b"}, {"s": "aaaaaa"}, {"s": None}, []]
    others: list[Document] = [
        {"i": 1.5}, {"i": 2**40}, {"i": 0}, {"i": "1"}, {"e": "z"}, {"l": ["a", "b"]},
        {"l": ["a", 1]}, {"m": [{}]}, {"m": [{"k": "a"}, {"k": "a"}]}, {"o": {}},
        {"o": {"a": "", "b": ""}}, {"r": {"least": 2, "most": 1}}, {"r": {"least": 2}},
        {"x": {"a": 1}},
        {"x": {"apiVersion": "v1", "kind": "A", "metadata": {"labels": {"a": 1}}}},
    ]  # fmt: skip
    for spec in (*specs, *({"s": "aa", **other} for other in others)):
        await it.ask("POST", path, {**body, "spec": spec})
    good = {**body, "spec": {"s": "aa", "unknown": 1}}
    await it.ask("POST", path, {**good, "kind": "Other"})
    await it.ask("POST", path, good, query={"fieldValidation": "Strict"})
    await it.ask("POST", path, good, whole=True)
    await it.ask("PATCH", f"{path}/a", {"spec": {"s": "b"}}, headers=_MERGE)
    await it.ask("PUT", f"{path}/a", {**body, "spec": {"s": "aa"}})
    await it.ask("DELETE", f"{_DEFINITIONS}/objects.{_GROUP}")
