"""OpenAPI v2 document as protobuf, in gnostic's messages (openapi.v2).

kubectl before 1.27 requests this form. Only elements that occur in our document are encoded. Values
of any type are encoded as YAML text, and JSON is YAML.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from onejob.api.schema.protobuf_writing import bytes_field, number_field, text_field

_OPERATIONS: Final = {"get": 2, "put": 3, "post": 4, "delete": 5, "patch": 8}


def encode_document(document: Mapping[str, Any]) -> bytes:
    """Encode a `Document`."""
    info = document["info"]
    return b"".join(
        (
            text_field(1, document["swagger"]),
            bytes_field(2, text_field(1, info["title"]) + text_field(2, info["version"])),
            bytes_field(8, _named(2, document["paths"], _path_item)),
            bytes_field(9, _named(1, document["definitions"], _schema)),
            *(
                bytes_field(12, _named(1, requirement, _strings))
                for requirement in document["security"]
            ),
            bytes_field(13, _named(1, document["securityDefinitions"], _security)),
        )
    )


def _named(number: int, values: Mapping[str, Any], encode: Callable[[Any], bytes]) -> bytes:
    """Encode a map: repeated {1 name, 2 value}."""
    return b"".join(
        bytes_field(number, text_field(1, name) + bytes_field(2, encode(value)))
        for name, value in values.items()
    )


def _path_item(item: Mapping[str, Any]) -> bytes:
    return b"".join(
        [bytes_field(_OPERATIONS[key], _operation(item[key])) for key in _OPERATIONS if key in item]
        + [bytes_field(9, _parameters_item(parameter)) for parameter in item.get("parameters", ())]
    )


def _operation(operation: Mapping[str, Any]) -> bytes:
    return b"".join(
        (
            _text(3, operation, "description"),
            _text(5, operation, "operationId"),
            _encode_texts(6, operation.get("produces", ())),
            _encode_texts(7, operation.get("consumes", ())),
            *(bytes_field(8, _parameters_item(p)) for p in operation.get("parameters", ())),
            bytes_field(9, _named(1, operation["responses"], _response_value)),
            _extensions(13, operation),
        )
    )


def _parameters_item(parameter: Mapping[str, Any]) -> bytes:
    """Encode a `ParametersItem` {1 parameter: `Parameter` {1 body, 2 other}}."""
    if parameter["in"] == "body":
        body = b"".join(
            (
                text_field(2, parameter["name"]),
                text_field(3, "body"),
                _flag(4, parameter, "required"),
                bytes_field(5, _schema(parameter["schema"])),
            )
        )
        return bytes_field(1, bytes_field(1, body))
    in_query = parameter["in"] == "query"
    # Query parameters have one additional field, before the type.
    shift = 1 if in_query else 0
    other = b"".join(
        (
            _flag(1, parameter, "required"),
            text_field(2, parameter["in"]),
            _text(3, parameter, "description"),
            text_field(4, parameter["name"]),
            text_field(5 + shift, parameter["type"]),
            _flag(19 + shift, parameter, "uniqueItems"),
        )
    )
    return bytes_field(1, bytes_field(2, bytes_field(3 if in_query else 4, other)))


def _response_value(response: Mapping[str, Any]) -> bytes:
    schema = bytes_field(1, _schema(response["schema"]))
    return bytes_field(1, text_field(1, response["description"]) + bytes_field(2, schema))


def _schema(schema: Mapping[str, Any]) -> bytes:
    written = [
        _text(1, schema, "$ref"),
        _text(2, schema, "format"),
        _text(4, schema, "description"),
    ]
    if "default" in schema:
        written.append(bytes_field(5, _encode_any(schema["default"])))
    written.append(_encode_texts(19, schema.get("required", ())))
    if "additionalProperties" in schema:
        written.append(bytes_field(21, _schema_or_flag(schema["additionalProperties"])))
    if "type" in schema:
        written.append(bytes_field(22, text_field(1, schema["type"])))
    if "items" in schema:
        written.append(bytes_field(23, bytes_field(1, _schema(schema["items"]))))
    if "properties" in schema:
        written.append(bytes_field(25, _named(1, schema["properties"], _schema)))
    written.append(_extensions(31, schema))
    return b"".join(written)


def _schema_or_flag(value: Mapping[str, Any] | bool) -> bytes:
    """Encode an `AdditionalPropertiesItem` {1 schema, 2 boolean}."""
    if isinstance(value, bool):
        return number_field(2, value)
    return bytes_field(1, _schema(value))


def _security(scheme: Mapping[str, Any]) -> bytes:
    """Encode a `SecurityDefinitionsItem` {2 api key {1 type, 2 name, 3 in, 4 description}}."""
    fields = ("type", "name", "in", "description")
    return bytes_field(
        2, b"".join(text_field(number, scheme[key]) for number, key in enumerate(fields, 1))
    )


def _strings(values: Iterable[str]) -> bytes:
    return _encode_texts(1, values)


def _extensions(number: int, values: Mapping[str, Any]) -> bytes:
    """Return the encoded `x-` members."""
    return _named(
        number, {key: value for key, value in values.items() if key.startswith("x-")}, _encode_any
    )


def _encode_any(value: Any) -> bytes:
    return text_field(2, msgspec.json.encode(value).decode())


def _text(number: int, values: Mapping[str, Any], key: str) -> bytes:
    """Return an encoded text member; nothing if it is absent."""
    return text_field(number, values[key]) if key in values else b""


def _encode_texts(number: int, values: Iterable[str]) -> bytes:
    return b"".join(text_field(number, value) for value in values)


def _flag(number: int, values: Mapping[str, Any], key: str) -> bytes:
    """Return an encoded flag; nothing if it is false or absent."""
    return number_field(number, 1) if values.get(key) else b""
