"""CustomResourceDefinitions, and the protobuf that client-go sends for them.

`python -m tests.api.recorded_definitions` records the bytes again, with Kubernetes' own codecs.
"""

import json
import subprocess
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any, Final

_RECORDED: Final = Path(__file__).with_suffix(".json")


def _definition(name: str, schema: dict[str, Any], **version: Any) -> dict[str, Any]:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": name},
        "spec": {
            "group": "example.com",
            "names": {"plural": "things", "kind": "Thing"},
            "scope": "Namespaced",
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    **version,
                }
            ],
        },
    }


_EVERY_KEYWORD: Final[dict[str, Any]] = {
    "id": "i",
    "$schema": "s",
    "$ref": "r",
    "description": "ein Ding, größer",
    "type": "object",
    "title": "t",
    "example": {"a": [1, 2.5, None, True, "x"]},
    "externalDocs": {"description": "d", "url": "u"},
    "definitions": {"d": {"type": "string"}},
    "dependencies": {"a": ["b", "c"], "d": {"type": "object"}},
    "patternProperties": {"^x": {"type": "string"}},
    "required": ["number", "text"],
    "maxProperties": 9,
    "minProperties": 0,
    "x-kubernetes-preserve-unknown-fields": False,
    "x-kubernetes-map-type": "granular",
    "x-kubernetes-validations": [
        {
            "rule": "self.number > 0",
            "message": "m",
            "messageExpression": "'m'",
            "reason": "FieldValueInvalid",
            "fieldPath": ".number",
            "optionalOldSelf": False,
        }
    ],
    "properties": {
        "number": {
            "type": "number",
            "maximum": 1.5,
            "exclusiveMaximum": True,
            "minimum": -2,
            "exclusiveMinimum": True,
            "multipleOf": 1e-9,
            "default": 0,
            "nullable": True,
        },
        "text": {
            "type": "string",
            "format": "date",
            "pattern": "^a",
            "maxLength": 0,
            "minLength": 0,
            "enum": ["a", None, "", {"b": None}, 1],
            "default": "",
        },
        "list": {
            "type": "array",
            "maxItems": 3,
            "minItems": 0,
            "uniqueItems": True,
            "items": {"type": "object", "properties": {"k": {"type": "string"}}},
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["k"],
            "default": [{"k": "a"}],
        },
        "tuple": {"items": [{"type": "string"}, {}], "additionalItems": False},
        "open": {"additionalProperties": True, "additionalItems": {"type": "string"}},
        "map": {"type": "object", "additionalProperties": {"type": "integer"}},
        "port": {"x-kubernetes-int-or-string": True},
        "object": {"x-kubernetes-embedded-resource": True, "not": {}},
        "logic": {"allOf": [{"type": "string"}], "anyOf": [{}], "oneOf": [{"not": {"not": {}}}]},
    },
}

#: By name. Some would not pass validation: the codec comes before it.
DEFINITIONS: Final[dict[str, dict[str, Any]]] = {
    "every keyword": _definition("keywords.example.com", _EVERY_KEYWORD),
    "every field": _definition(
        "fields.example.com",
        {"type": "object"},
        deprecated=True,
        deprecationWarning="",
        subresources={
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.r",
                "statusReplicasPath": ".status.r",
                "labelSelectorPath": "",
            },
        },
        selectableFields=[{"jsonPath": ".spec.a"}],
        additionalPrinterColumns=[
            {
                "name": "A",
                "type": "integer",
                "format": "int32",
                "description": "d",
                "priority": -1,
                "jsonPath": ".a",
            }
        ],
    ),
    "conversion and status": {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "converted.example.com", "labels": {"a": "b"}},
        "spec": {
            "group": "example.com",
            "names": {
                "plural": "things",
                "singular": "thing",
                "shortNames": ["t", "th"],
                "kind": "Thing",
                "listKind": "ThingList",
                "categories": ["all"],
            },
            "scope": "Cluster",
            "preserveUnknownFields": True,
            "versions": [{"name": "v1", "served": False, "storage": False}],
            "conversion": {
                "strategy": "Webhook",
                "webhook": {
                    "conversionReviewVersions": ["v1"],
                    "clientConfig": {
                        "url": "https://example.com",
                        "caBundle": "YWI=",
                        "service": {"namespace": "n", "name": "s", "path": "", "port": 443},
                    },
                },
            },
        },
        "status": {
            "acceptedNames": {"plural": "things", "kind": "Thing"},
            "storedVersions": ["v1"],
            "observedGeneration": 3,
            "conditions": [
                {
                    "type": "Established",
                    "status": "True",
                    "lastTransitionTime": "2026-11-18T09:00:00Z",
                    "reason": "R",
                    "message": "m",
                    "observedGeneration": 2,
                }
            ],
        },
    },
}


def recorded() -> dict[str, bytes]:
    """Return client-go's protobuf of each of DEFINITIONS, by name."""
    texts = json.loads(_RECORDED.read_text())
    return {name: b64decode(text) for name, text in texts.items()}


def converted(program: Path, verb: str, body: bytes) -> bytes:
    """Run Kubernetes' codec: `encode` JSON, or `decode` protobuf."""
    done = subprocess.run([program, verb], input=body, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def main() -> None:
    from tests.upstream.building import CODEC, build

    program = build([CODEC], print) / CODEC.name
    texts = {
        name: b64encode(converted(program, "encode", json.dumps(document).encode())).decode()
        for name, document in DEFINITIONS.items()
    }
    _RECORDED.write_text(json.dumps(texts, indent=1) + "\n")


if __name__ == "__main__":
    main()
