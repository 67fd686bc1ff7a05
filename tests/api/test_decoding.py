import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onejob.api.decoding.bodies import MAX_BODY_BYTES, decode_body, decode_patch
from onejob.api.decoding.json_reading import MAX_DEPTH
from onejob.wire.errors import BadRequest, RequestTooLarge, UnsupportedMediaType

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"


def yaml_value(text: str) -> Any:
    return decode_body(f"value: {text}\n".encode(), YAML).document["value"]


@pytest.mark.parametrize("content_type", ["", JSON, "Application/JSON; charset=utf-8"])
def test_json_is_read_and_is_the_default(content_type: str) -> None:
    assert decode_body(b'{"a": [1, 2.5, "x", null, true]}', content_type) == (
        {"a": [1, 2.5, "x", None, True]},
        [],
    )


@pytest.mark.parametrize("content_type", ["text/plain", "application/xml", "*/*"])
def test_other_media_types_are_refused(content_type: str) -> None:
    with pytest.raises(UnsupportedMediaType):
        decode_body(b"{}", content_type)


def test_duplicate_fields_of_json_are_named_and_the_last_one_counts() -> None:
    body = b'{"spec":{"a":1,"l":[{"b":1,"b":2,"b":3}],"a":{"c":1}},"metadata":{}}'
    document, problems = decode_body(body, JSON)
    assert document == {"spec": {"a": {"c": 1}, "l": [{"b": 3}]}, "metadata": {}}
    assert problems == ['duplicate field "spec.l[0].b"', 'duplicate field "spec.a"']


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"{'a': 1}", b"nope", b'{"a": NaN}', b'{"a": Infinity}', b'{"a":1}}', b"[1,]"],
)
def test_invalid_json_is_a_bad_request(body: bytes) -> None:
    with pytest.raises(BadRequest):
        decode_body(body, JSON)


@pytest.mark.parametrize(
    "body", [b'{"a": "\\ud800"}', b'{"a": "x\xffy"}', b'{"\\udfff": {"b": ["\\ud800"]}}']
)
def test_text_can_always_be_written_as_utf8_again(body: bytes) -> None:
    document = decode_body(body, JSON).document
    assert json.dumps(document, ensure_ascii=False).encode()


def test_surrogate_pairs_survive() -> None:
    assert decode_body(b'{"a": "\\ud83d\\ude00"}', JSON).document == {"a": "\U0001f600"}


@pytest.mark.parametrize("content_type", [JSON, YAML])
@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 5_000, 200_000])
def test_depth_is_limited(opening: bytes, depth: int, content_type: str) -> None:
    closing = b"]" if opening == b"[" else b"1" + b"}"
    body = opening * depth + (b"" if opening == b"[" else b"1") + closing[-1:] * depth
    with pytest.raises((BadRequest, RequestTooLarge)):
        decode_body(body, content_type)


@pytest.mark.parametrize("content_type", [JSON, YAML])
def test_the_deepest_allowed_document_is_read(content_type: str) -> None:
    body = b"[" * MAX_DEPTH + b"]" * MAX_DEPTH
    assert decode_body(body, content_type).problems == []


def test_size_is_limited() -> None:
    with pytest.raises(RequestTooLarge):
        decode_body(b" " * (MAX_BODY_BYTES + 1), JSON)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *((word, True) for word in ("y", "Y", "yes", "Yes", "on", "ON", "true", "True")),
        *((word, False) for word in ("n", "N", "no", "NO", "off", "Off", "false")),
        *((word, None) for word in ("~", "null", "Null", "")),
        ('"y"', "y"),
        ("'no'", "no"),
        ("!!str yes", "yes"),
        ("!!str 5", "5"),
        ("!!int '5'", 5),
        ("5", 5),
        ("+5", 5),
        ("-5", -5),
        ("1_000", 1000),
        ("0644", 420),
        ("0o17", 15),
        ("0x1F", 31),
        ("0b101", 5),
        ("089", 89),
        ("0.5", 0.5),
        (".5", 0.5),
        ("1.0", 1),
        ("1e3", 1000),
        ("1.5e-3", 0.0015),
        ("1:30", "1:30"),
        ("2026-11-15", "2026-11-15"),
        ("2026-11-15T10:00:00Z", "2026-11-15T10:00:00Z"),
        ("500m", "500m"),
        ("1.2.3", "1.2.3"),
        ("=", "="),
        ("|\n  a\n  b", "a\nb\n"),
        ("[a, 1, {b: c}]", ["a", 1, {"b": "c"}]),
    ],
)
def test_yaml_scalars_are_read_as_kubernetes_reads_them(text: str, value: Any) -> None:
    found = yaml_value(text)
    assert (found, type(found)) == (value, type(value))


def test_yaml_keys_become_text() -> None:
    assert decode_body(b"1: a\ntrue: b\n1.5: c\nx: d\n", YAML).document == {
        "1": "a",
        "true": "b",
        "1.5": "c",
        "x": "d",
    }


def test_yaml_merge_keys_are_merged() -> None:
    body = b"base: &b {x: 1, y: 2}\none:\n  <<: *b\n  x: 3\ntwo:\n  <<: [{z: 1}, {z: 2, w: 3}]\n"
    document = decode_body(body, YAML).document
    assert document["one"] == {"x": 3, "true": 2}
    assert document["two"] == {"z": 1, "w": 3}


def test_aliases_are_copied_so_that_nothing_is_shared() -> None:
    document = decode_body(b"a: &x {k: [1]}\nb: *x\n", YAML).document
    document["a"]["k"].append(2)
    assert document["b"] == {"k": [1]}


def test_duplicate_keys_of_yaml_are_named_with_their_line() -> None:
    document, problems = decode_body(b"spec:\n  a: 1\n  b: 2\n  a: 3\n", YAML)
    assert document == {"spec": {"a": 3, "b": 2}}
    assert problems == ['line 4: key "a" already set in map']


@pytest.mark.parametrize("number", [b"1e400", b"-1e400", b"9" * 400 + b".0"])
def test_numbers_that_no_float_can_hold_are_a_bad_request(number: bytes) -> None:
    """They would be stored as null."""
    with pytest.raises(BadRequest, match=r"cannot unmarshal number .* of type float64"):
        decode_body(b'{"a": [' + number + b"]}", "application/json")


@pytest.mark.parametrize(
    "body",
    [
        b"a: 1\n---\nb: 2\n",
        b"a: [",
        b"a: b: c",
        b"\tx",
        b"? [a]\n: 1",
        b"~: 1",
        b"a: .inf",
        b"a: .nan",
        b"a: 1e999",
        b"a: *nowhere",
        b"<<: 5",
        b"a: &x [*x]",
        b"a: " + b"9" * 5000,
        b"a: \x00",
    ],
)
def test_yaml_that_is_no_single_json_like_document_is_a_bad_request(body: bytes) -> None:
    with pytest.raises(BadRequest):
        decode_body(body, YAML)


def test_a_small_body_cannot_become_a_huge_document() -> None:
    lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x]"]
    lines += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    with pytest.raises(BadRequest, match="more than 100000 values"):
        decode_body("\n".join(lines).encode(), YAML)


@pytest.mark.parametrize("body", [b"", b"# nothing\n", b"---\n"])
def test_an_empty_yaml_document_is_null(body: bytes) -> None:
    assert decode_body(body, YAML) == (None, [])


@pytest.mark.parametrize(
    ("content_type", "body", "patch_type"),
    [
        ("application/json-patch+json", b"[]", "json"),
        ("application/merge-patch+json", b"{}", "merge"),
        ("application/strategic-merge-patch+json; charset=utf-8", b"{}", "strategic"),
        ("application/apply-patch+yaml", b"{}", "apply"),
        ("application/apply-patch+yaml", b"a: b", "apply"),
    ],
)
def test_patch_type_is_selected_by_content_type(
    content_type: str, body: bytes, patch_type: str
) -> None:
    assert decode_patch(body, content_type)[0] == patch_type


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("application/json-patch+json", b"{}"),
        ("application/merge-patch+json", b"[]"),
        ("application/merge-patch+json", b"a: b"),
        ("application/strategic-merge-patch+json", b"null"),
        ("application/apply-patch+yaml", b"- a"),
    ],
)
def test_a_patch_of_the_wrong_form_is_a_bad_request(content_type: str, body: bytes) -> None:
    with pytest.raises(BadRequest):
        decode_patch(body, content_type)


@pytest.mark.parametrize("content_type", ["", JSON, YAML])
def test_a_patch_without_a_patch_type_is_refused(content_type: str) -> None:
    with pytest.raises(UnsupportedMediaType):
        decode_patch(b"{}", content_type)


_garbage = st.binary(max_size=200) | st.text(
    '{}[]":,\\ \n-&*!|>%@#?<~.0123456789abctrufalsenlyo_', max_size=80
).map(str.encode)


@given(_garbage, st.sampled_from([JSON, YAML, PROTOBUF]))
def test_garbage_is_read_or_refused_but_never_crashes(body: bytes, content_type: str) -> None:
    with contextlib.suppress(BadRequest):
        decode_body(body, content_type)


_values: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@given(st.dictionaries(st.text(), _values, max_size=4))
def test_any_json_document_is_read_unchanged(document: dict[str, Any]) -> None:
    body = json.dumps(document).encode()
    assert decode_body(body, JSON) == (document, [])
