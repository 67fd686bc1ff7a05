"""Randomly mutated definitions and objects: refused or served, never an internal error."""

from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from onejob.api.service import Service
from onejob.wire.errors import ApiError
from onejob.wire.kinds import BY_RESOURCE, Kind
from onejob.wire.requests import Target, WriteOptions
from tests.api.crd.build import a_definition, a_version, text, thing, widget
from tests.harness import running

CRD = BY_RESOURCE["customresourcedefinitions.apiextensions.k8s.io"]
KEYED = {
    "type": "array", "maxItems": 5,
    "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
    "items": thing({"name": text(maxLength=5), "w": {"type": "integer"}}, required=["name"]),
}  # fmt: skip
SPEC = thing(
    {
        "size": {"type": "integer", "minimum": 1, "default": 2, "multipleOf": 2, "format": "int32"},
        "color": text(enum=["a"], pattern="^a$", maxLength=4),
        "keyed": KEYED,
        "map": {"type": "object", "additionalProperties": text(format="date-time")},
        "either": {"x-kubernetes-int-or-string": True},
        "any": {"x-kubernetes-preserve-unknown-fields": True},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": text()},
    },
    **{"x-kubernetes-validations": [{"rule": "self.size <= 10", "messageExpression": "'x'"}]},
)
DEFINITION = a_definition(
    a_version(
        SPEC,
        additionalPrinterColumns=[{"name": "S", "type": "integer", "jsonPath": ".spec.size"}],
        selectableFields=[{"jsonPath": ".spec.color"}],
        subresources={"status": {}},
    )
)
OBJECT = widget(
    spec={
        "size": 2, "color": "a", "keyed": [{"name": "x", "w": 1}], "either": 5, "any": [1],
        "map": {"a": "2026-01-01T00:00:00Z"}, "set": ["a", "b"],
    }
)  # fmt: skip
ODD: list[Any] = [
    None, "", [], {}, 0, -1, True, 1.5, "x", ["a"], {"a": 1}, [None], {"": None}, 10**30, "v1",
    ".spec.x", "null", "object", "array", [{}], {"type": "string"}, [{"name": 1}], "a" * 3000, "(",
]  # fmt: skip
WORDS = [
    "type", "items", "properties", "default", "nullable", "anyOf", "additionalProperties", "not",
    "metadata", "allOf", "format", "x-kubernetes-list-type",
]  # fmt: skip
DRY = WriteOptions(field_manager="x", dry_run=True)


def mutated(document: dict[str, Any], rng: Random) -> dict[str, Any]:
    document = deepcopy(document)
    node: Any = document
    while True:
        key = rng.choice(list(node)) if isinstance(node, dict) else rng.randrange(len(node))
        child = node[key]
        if rng.random() < 0.15 or not isinstance(child, (dict, list)) or not child:
            match rng.randrange(5):
                case 0:
                    del node[key]
                case 1 if isinstance(node, dict):
                    node[rng.choice(WORDS)] = deepcopy(rng.choice(ODD))
                case _:
                    node[key] = deepcopy(rng.choice(ODD))
            return document
        node = child


@pytest.mark.parametrize("seed", range(4))
async def test_no_definition_and_no_object_is_a_bug(tmp_path: Path, seed: int) -> None:
    rng = Random(seed)
    async with running(tmp_path) as plane:
        assert sum(_tried(plane.service, rng) for _ in range(60)) > 5, "some are served"


def _tried(service: Service, rng: Random) -> bool:
    """Create a mutated definition and try objects on it. Return whether it was accepted."""
    try:
        made = service.writes.create(CRD, "", mutated(DEFINITION, rng), DRY)
    except ApiError:
        return False
    definition = msgspec.json.decode(made.document)
    names = {"acceptedNames": definition["spec"]["names"]}
    service.definitions.install({**definition, "status": names})
    kind = service.kinds.by_resource.get(definition["metadata"]["name"])
    if kind is not None:
        _try_objects(service, kind, rng)
    service.definitions.remove(definition["metadata"]["name"])
    return True


def _try_objects(service: Service, kind: Kind, rng: Random) -> None:
    namespace = "default" if kind.namespaced else ""
    target = Target(kind, namespace, "a")
    known = {"apiVersion": kind.api_version, "kind": kind.kind}
    for _ in range(3):
        with suppress(ApiError):
            service.writes.create(kind, namespace, {**mutated(OBJECT, rng), **known}, DRY)
        with suppress(ApiError):
            body = {**mutated(OBJECT, rng), **known}
            service.writes.patch(target, "apply", body, DRY)
