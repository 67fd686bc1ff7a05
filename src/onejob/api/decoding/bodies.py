"""Request body decoding: JSON, YAML or protobuf to plain values, reporting duplicate fields.

Any input is safe: the result is a value or an `ApiError`.
"""

from typing import Final

from onejob.api.decoding.json_reading import MAX_DEPTH, Decoded, decode_json
from onejob.api.schema.shapes import json_type
from onejob.api.yielding import INLINE_BYTES
from onejob.wire.errors import BadRequest, RequestTooLarge, UnsupportedMediaType

JSON: Final = "application/json"
YAML: Final = "application/yaml"
PROTOBUF: Final = "application/vnd.kubernetes.protobuf"

MAX_BODY_BYTES: Final = 3 * 1024 * 1024


def weight(body: bytes, content_type: str) -> int:
    """Return the processing cost of a body in bytes.

    It exceeds the length of the body where a few bytes can expand to many: YAML aliases and copy
    operations of a JSON patch.
    """
    small = len(body) <= INLINE_BYTES
    if small and "yaml" in content_type and b"*" in body:
        return INLINE_BYTES + 1
    if small and "json-patch" in content_type and b"copy" in body:
        return INLINE_BYTES + 1
    return len(body)


def decode_body(body: bytes, content_type: str) -> Decoded:
    """Decode an object to be created or replaced.

    An absent content type means JSON. Raises BadRequest, RequestTooLarge or UnsupportedMediaType.
    """
    _check_size(body)
    media_type = content_type.partition(";")[0].strip().lower() or JSON
    match media_type:
        case "application/json":
            return decode_json(body)
        case "application/yaml":
            return decode_yaml(body)
        case "application/vnd.kubernetes.protobuf":
            # Imported lazily: few requests need its tables.
            from onejob.api.decoding.protobuf import decode_protobuf

            return Decoded(decode_protobuf(body), [])
        case _:
            raise UnsupportedMediaType(
                f"the body of the request was in an unknown format - accepted media types "
                f"include: {JSON}, {YAML}, {PROTOBUF}"
            )


#: `patch_type` of `Service.patch` by media type.
_PATCHES: Final = {
    "application/json-patch+json": "json",
    "application/merge-patch+json": "merge",
    "application/strategic-merge-patch+json": "strategic",
    "application/apply-patch+yaml": "apply",
}


def decode_patch(body: bytes, content_type: str) -> tuple[str, Decoded]:
    """Return the patch type (json, merge, strategic, apply) and the decoded patch.

    Raises as `decode_body`, and BadRequest if the patch is not the list or object that its type
    requires.
    """
    media_type = content_type.partition(";")[0].strip().lower()
    patch_type = _PATCHES.get(media_type)
    if patch_type is None:
        raise UnsupportedMediaType(
            "the body of the request was in an unknown format - accepted media types include: "
            + ", ".join(_PATCHES)
        )
    _check_size(body)
    decoded = decode_yaml(body) if patch_type == "apply" else decode_json(body)
    wanted, go_name = (
        (list, "jsonpatch.Patch") if patch_type == "json" else (dict, "map[string]interface {}")
    )
    if not isinstance(decoded.document, wanted):
        found = json_type(decoded.document)
        raise BadRequest(f"json: cannot unmarshal {found} into Go value of type {go_name}")
    return patch_type, decoded


def _check_size(body: bytes) -> None:
    if len(body) > MAX_BODY_BYTES:
        raise RequestTooLarge(f"Request entity too large: limit is {MAX_BODY_BYTES}")


def decode_yaml(body: bytes) -> Decoded:
    """Decode YAML.

    Input that looks like JSON, a subset of YAML, is tried with the faster decoder first.
    """
    if body.lstrip()[:1] in (b"{", b"["):
        try:
            return decode_json(body)
        except BadRequest:
            pass  # Flow-style YAML need not be JSON: {a: b}.
    from onejob.api.decoding.yaml_reading import read_yaml

    document, problems = read_yaml(body, MAX_DEPTH)
    return Decoded(document, problems)
