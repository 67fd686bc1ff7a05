"""Validation of values against a schema: messages, paths, and ratcheting on updates."""

from typing import Any

import pytest

from onejob.api.crd.defaulting import apply_defaults
from onejob.api.crd.pruning import drop_nulls, prune
from onejob.api.crd.structural import Node
from onejob.api.crd.values import UNRELATED, Validator, check_lists
from tests.api.crd.build import text, thing

MANY = {"type": "array", "items": {"type": "integer"}}
KEYED = {
    "type": "array",
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["name"],
    "items": thing({"name": text(), "size": {"type": "integer", "maximum": 3}}, required=["name"]),
}


def errors_of(schema: dict[str, Any], value: Any, old: Any = UNRELATED) -> list[str]:
    errors: list[Any] = []
    Validator(Node(schema)).check(value, old, None, errors)
    return [str(error) for error in errors]


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        (text(), 5, 'x: Invalid value: "integer": x in body must be of type string: "integer"'),
        (text(), None, 'x: Invalid value: "null": x in body must be of type string: "null"'),
        ({"x-kubernetes-int-or-string": True}, True,
         'x: Invalid value: "boolean": x in body must be of type integer,string: "boolean"'),
        (text(enum=["a", "b"]), "c", 'x: Unsupported value: "c": supported values: "a", "b"'),
        (text(minLength=2), "a",
         'x: Invalid value: "a": x in body should be at least 2 chars long'),
        (text(maxLength=2, pattern="^z"), "abc", "x: Too long: may not be more than 2 bytes"),
        (text(pattern="^(?i)[a-z]+$"), "1",
         "x: Invalid value: \"1\": x in body should match '^(?i)[a-z]+$'"),
        (text(format="date-time"), "soon",
         'x: Invalid value: "soon": x in body must be of type date-time: "soon"'),
        ({"type": "integer", "minimum": 1}, 0,
         "x: Invalid value: 0: x in body should be greater than or equal to 1"),
        ({"type": "number", "maximum": 1, "exclusiveMaximum": True}, 1,
         "x: Invalid value: 1: x in body should be less than 1"),
        ({"type": "integer", "multipleOf": 5}, 7,
         "x: Invalid value: 7: x in body should be a multiple of 5"),
        ({**MANY, "minItems": 1}, [],
         "x: Invalid value: 0: x in body should have at least 1 items"),
        ({**MANY, "maxItems": 1}, [1, 2], "x: Too many: 2: must have at most 1 item"),
        (MANY, [1, "b"],
         'x[1]: Invalid value: "string": x[1] in body must be of type integer: "string"'),
        ({"type": "object", "additionalProperties": text()}, {"k": 1},
         'x.k: Invalid value: "integer": x.k in body must be of type string: "integer"'),
        (thing({"a": text()}, required=["a"]), {}, "x.a: Required value"),
        (text(oneOf=[{"pattern": "a"}, {"pattern": "b"}]), "ab",
         '<nil>: Invalid value: "": "x" must validate one and only one schema (oneOf). '
         "Found 2 valid alternatives"),
        ({"type": "integer", "format": "int32"}, 2**40,
         '<nil>: Invalid value: "": Checked value must be of type integer with format int32 in x'),
        (text(**{"not": {"pattern": "a"}}), "a",
         '<nil>: Invalid value: "": "x" must not validate the schema (not)'),
    ],
)  # fmt: skip
def test_validation_errors_match_upstream_messages(
    schema: dict[str, Any], value: Any, expected: str
) -> None:
    assert errors_of(thing({"x": schema}), {"x": value}) == [expected]


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        (text(anyOf=[{"pattern": "a"}, {"pattern": "b"}]), "c",
         ['<nil>: Invalid value: "": "x" must validate at least one schema (anyOf)',
          "x: Invalid value: \"c\": x in body should match 'a'"]),
        (thing({"a": text()}, oneOf=[{"required": ["a"]}, {"required": ["b"]}]), {},
         ['<nil>: Invalid value: "": "x" must validate one and only one schema (oneOf). Found none '
          "valid", "x.a: Required value"]),
        ({"type": "integer", "format": "int64"}, 2**63,
         ['<nil>: Invalid value: "": Checked value must be of type integer with format int64 in x',
          'x: Invalid value: "float64": x in body must be of type int64: "float64"']),
        ({"type": "integer"}, 1.5,
         ['<nil>: Invalid value: "": Checked value must be of type integer (default format) in x',
          'x: Invalid value: "number": x in body must be of type integer: "number"']),
        ({"type": "integer"}, 1e30,
         ['<nil>: Invalid value: "": Checked value must be of type integer (default format) in x',
          'x: Invalid value: "number": x in body must be of type integer: "number"']),
        ({"type": "object", "x-kubernetes-embedded-resource": True,
          "x-kubernetes-preserve-unknown-fields": True}, {"kind": ""},
         ["x.apiVersion: Required value", "x.kind: Required value: must not be empty"]),
    ],
)  # fmt: skip
def test_all_errors_of_a_value_are_reported(
    schema: dict[str, Any], value: Any, expected: list[str]
) -> None:
    assert errors_of(thing({"x": schema}), {"x": value}) == expected


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (text(nullable=True), None),
        ({"type": "number"}, 3),
        ({"type": "integer"}, 3.0),
        ({"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]},
         "50%"),
        (text(format="unheard-of"), "x"),
        (text(format="duration"), "1h30m"),
        (text(format="ipv4"), "10.0.0.1"),
        (text(format="uuid"), "9e4f764c-2b09-4ca3-8f4e-cacc4d872716"),
        ({"x-kubernetes-preserve-unknown-fields": True}, [1, {"a": 2}]),
    ],
)  # fmt: skip
def test_valid_values_are_accepted(schema: dict[str, Any], value: Any) -> None:
    assert errors_of(thing({"x": schema}), {"x": value}) == []


def test_a_pattern_cannot_take_exponential_time() -> None:
    schema = text(pattern="^(a+)+$")
    assert len(errors_of(schema, "a" * 5000 + "b")) == 1


def test_unchanged_invalid_values_are_accepted_in_updates() -> None:
    schema = thing({"a": text(maxLength=1), "b": text(maxLength=1), "list": KEYED})
    old = {"a": "long", "list": [{"name": "x", "size": 9}]}
    assert errors_of(schema, {**old, "b": "b"}, old) == []
    moved = {**old, "list": [{"name": "new"}, {"name": "x", "size": 9}]}
    assert errors_of(schema, moved, old) == []
    changed = {"a": "longer", "list": [{"name": "x", "size": 8}]}
    assert [error.partition(":")[0] for error in errors_of(schema, changed, old)] == [
        "a",
        "list[0].size",
    ]


def test_sets_and_keys_stand_once() -> None:
    schema = thing({"set": {"type": "array", "items": text(), "x-kubernetes-list-type": "set"},
                    "map": KEYED})  # fmt: skip
    errors: list[Any] = []
    value = {"set": ["a", "b", "a"], "map": [{"name": "x"}, {"name": "x", "size": 1}]}
    check_lists(value, Node(schema), None, errors)
    assert [str(error) for error in errors] == [
        'set[2]: Duplicate value: "a"',
        'map[1]: Duplicate value: {"name":"x"}',
    ]


def test_unknown_fields_go_but_where_they_are_preserved() -> None:
    schema = thing(
        {
            "known": thing({"a": text()}),
            "open": thing({"a": thing({})}, **{"x-kubernetes-preserve-unknown-fields": True}),
            "map": {"type": "object", "additionalProperties": thing({"a": text()})},
            "object": {"type": "object", "x-kubernetes-embedded-resource": True,
                       "x-kubernetes-preserve-unknown-fields": True},
        }
    )  # fmt: skip
    value = {
        "known": {"a": "1", "b": 2},
        "open": {"b": {"c": 3}, "a": {"d": 4}},
        "map": {"k": {"a": "1", "z": 1}},
        "object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": {}},
        "stranger": 1,
        "metadata": {"name": "kept"},
    }
    problems: list[str] = []
    prune(value, Node(schema), None, problems, root=True)
    assert value == {
        "known": {"a": "1"},
        "open": {"b": {"c": 3}, "a": {}},
        "map": {"k": {"a": "1"}},
        "object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": {}},
        "metadata": {"name": "kept"},
    }
    assert sorted(problems) == [
        f'unknown field "{field}"' for field in ("known.b", "map.k.z", "open.a.d", "stranger")
    ]


def test_defaults_are_filled_in_from_the_outside_inwards() -> None:
    inner = thing({"size": {"type": "integer", "default": 3}, "name": text(default="x")})
    made = {**inner, "default": {"name": "y"}}
    several = {"type": "array", "items": inner}
    schema = thing({"made": made, "list": several, "given": inner, "absent": inner})
    value: dict[str, Any] = {"list": [{"size": 1}], "given": {"name": None}}
    drop_nulls(value, Node(schema))
    apply_defaults(value, Node(schema))
    assert value == {
        "list": [{"size": 1, "name": "x"}],
        "given": {"size": 3, "name": "x"},
        "made": {"name": "y", "size": 3},
    }


def test_a_null_is_left_out_where_the_schema_allows_none() -> None:
    """Go clients send unset maps and lists as null."""
    schema = thing(
        {
            "map": {"type": "object", "additionalProperties": text()},
            "free": text(nullable=True),
            "list": {"type": "array", "items": text()},
        }
    )
    value: dict[str, Any] = {"map": None, "free": None, "list": [None]}
    drop_nulls(value, Node(schema))
    assert value == {"free": None, "list": [None]}
    value = {"map": {"a": None, "b": "c"}}
    drop_nulls(value, Node(schema))
    assert value == {"map": {"b": "c"}}


def test_items_of_a_keyed_list_that_are_no_objects_have_no_keys() -> None:
    errors: list[Any] = []
    check_lists({"list": [None, 5, 5]}, Node(thing({"list": KEYED})), None, errors)
    assert errors == []
