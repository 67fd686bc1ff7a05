"""CustomResourceDefinitions in protobuf, as client-go's apiextensions clientset sends them."""

import json
import struct
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from onejob.api.decoding.json_reading import MAX_DEPTH, is_too_deep
from onejob.api.decoding.protobuf import decode_protobuf
from onejob.api.schema.protobuf_encoding import encode_object
from onejob.api.schema.schema import TypeMismatch, load_schema, normalise
from onejob.wire.errors import BadRequest
from tests.api.protobuf_support import body, message, varint
from tests.api.recorded_definitions import DEFINITIONS, converted, recorded
from tests.upstream.building import CODEC, cache, missing

TYPE = ("apiextensions.k8s.io/v1", "CustomResourceDefinition")

each_definition = pytest.mark.parametrize("name", DEFINITIONS)


def normalised(document: dict[str, Any]) -> dict[str, Any]:
    document = deepcopy(document)
    assert normalise(document, load_schema().kind(*TYPE)) == []
    return document


def without_empty(value: Any) -> Any:
    """Remove empty structs, which Go writes unless they are pointers."""
    if isinstance(value, dict) and value.keys() >= {"metadata", "spec", "status"}:
        status = value["status"]
        if status.get("acceptedNames") == {"plural": "", "kind": ""}:
            del value["status"]
    return value


def schema_field(schema: bytes) -> bytes:
    """Return a body whose only version has `schema` as its openAPIV3Schema message."""
    version = message((1, "v1"), (4, message((1, schema))))
    return body(*TYPE, message((2, message((7, version)))))


def read_schema(schema: bytes) -> Any:
    version = decode_protobuf(schema_field(schema))["spec"]["versions"][0]
    return version["schema"]["openAPIV3Schema"]


@each_definition
def test_decode_reads_recorded_client_go_bytes(name: str) -> None:
    decoded = normalised(decode_protobuf(recorded()[name]))
    assert without_empty(decoded) == normalised(DEFINITIONS[name])


@each_definition
def test_decode_reads_encoded_definition(name: str) -> None:
    document = normalised(DEFINITIONS[name])
    assert decode_protobuf(encode_object(json.dumps(document).encode())) == document


@pytest.mark.skipif(bool(missing([CODEC])), reason="needs Kubernetes' codec: run `make upstream`")
class TestWithKubernetesCodec:
    codec: Path = cache() / CODEC.name

    @each_definition
    def test_codec_reads_encoded_definition(self, name: str) -> None:
        document = json.dumps(normalised(DEFINITIONS[name])).encode()
        as_json = converted(self.codec, "encode", document)
        ours = converted(self.codec, "decode", encode_object(document))
        assert json.loads(ours) == json.loads(converted(self.codec, "decode", as_json))

    @each_definition
    def test_recorded_bytes_match_codec(self, name: str) -> None:
        document = json.dumps(DEFINITIONS[name]).encode()
        assert converted(self.codec, "encode", document) == recorded()[name]


def test_null_in_enum_stays_null() -> None:
    schema = normalised(DEFINITIONS["every keyword"])["spec"]["versions"][0]["schema"]
    text = schema["openAPIV3Schema"]["properties"]["text"]
    assert text["enum"] == ["a", None, "", {"b": None}, 1]


@pytest.mark.parametrize(
    ("wire", "value"),
    [(0.0, 0), (5.0, 5), (-1.0, -1), (0.1, 0.1), (1e300, 1e300), (5e-324, 5e-324)],
)
def test_double_becomes_the_number_that_json_has(wire: float, value: float) -> None:
    schema = read_schema(varint(9 << 3 | 1) + struct.pack("<d", wire))
    assert schema == {"maximum": value}
    assert type(schema["maximum"]) is type(value)


@pytest.mark.parametrize("wire", [float("nan"), float("inf"), -float("inf")])
def test_double_that_json_lacks_is_refused(wire: float) -> None:
    with pytest.raises(BadRequest, match="unsupported value"):
        read_schema(varint(9 << 3 | 1) + struct.pack("<d", wire))


@pytest.mark.parametrize("field", [varint(9 << 3) + b"\x05", message((9, "short"))])
def test_double_of_other_wire_type_is_refused(field: bytes) -> None:
    with pytest.raises(BadRequest):
        read_schema(field)


def test_number_beyond_float64_is_refused() -> None:
    document = deepcopy(DEFINITIONS["every keyword"])
    schema = document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["number"]["maximum"] = 10**400
    with pytest.raises(TypeMismatch, match="cannot unmarshal number"):
        normalise(document, load_schema().kind(*TYPE))


@pytest.mark.parametrize(
    ("alternative", "value"),
    [
        (message((24, b"")), {}),
        (message((24, message((1, b"")))), {"items": {}}),
        (message((24, message((2, b""), (2, message((5, "string")))))),
         {"items": [{}, {"type": "string"}]}),
        (message((30, b"")), {"additionalProperties": False}),
        (message((30, message((1, 1)))), {"additionalProperties": True}),
        (message((30, message((1, 0), (2, b"")))), {"additionalProperties": {}}),
        (message((32, message((1, "k"), (2, b"")))), {"dependencies": {"k": {}}}),
        (message((32, message((1, "k"), (2, message((2, "a"), (2, "b")))))),
         {"dependencies": {"k": ["a", "b"]}}),
    ],
)  # fmt: skip
def test_alternatives_of_a_schema_are_read_as_go_does(alternative: bytes, value: Any) -> None:
    assert read_schema(alternative) == value


def nested(levels: int, wrap: Any) -> bytes:
    schema = b""
    for _ in range(levels):
        schema = wrap(schema)
    return schema_field(schema)


#: Ways in which a schema contains another, with the JSON levels that each adds.
WRAPPINGS: dict[str, Any] = {
    "not": (1, lambda inner: message((28, inner))),
    "items": (1, lambda inner: message((24, message((1, inner))))),
    "list of items": (2, lambda inner: message((24, message((2, inner))))),
    "allOf": (2, lambda inner: message((25, inner))),
    "properties": (2, lambda inner: message((29, message((1, "p"), (2, inner))))),
    "additionalProperties": (1, lambda inner: message((30, message((1, 1), (2, inner))))),
    "dependencies": (2, lambda inner: message((32, message((1, "d"), (2, message((1, inner))))))),
}


@pytest.mark.parametrize("wrapping", WRAPPINGS)
@pytest.mark.parametrize("levels", [MAX_DEPTH, 20_000])
def test_decode_refuses_deep_schema(wrapping: str, levels: int) -> None:
    with pytest.raises(BadRequest, match="exceeded max depth"):
        decode_protobuf(nested(levels, WRAPPINGS[wrapping][1]))


@pytest.mark.parametrize("wrapping", WRAPPINGS)
def test_encode_writes_deepest_schema_that_decode_accepts(wrapping: str) -> None:
    per_level, wrap = WRAPPINGS[wrapping]
    document = decode_protobuf(nested((MAX_DEPTH - 7) // per_level, wrap))
    assert decode_protobuf(encode_object(json.dumps(document).encode())) == document


def test_decode_refuses_deep_json_in_deep_schema() -> None:
    levels = MAX_DEPTH // 2
    schema = message((8, message((1, b"[" * levels + b"]" * levels))))
    for _ in range(levels):
        schema = message((28, schema))
    with pytest.raises(BadRequest, match="exceeded max depth"):
        decode_protobuf(schema_field(schema))


def test_decode_gives_no_document_deeper_than_json_may_be() -> None:
    for levels in range(MAX_DEPTH - 10, MAX_DEPTH):
        try:
            document = decode_protobuf(nested(levels, WRAPPINGS["not"][1]))
        except BadRequest:
            continue
        assert not is_too_deep(document)
