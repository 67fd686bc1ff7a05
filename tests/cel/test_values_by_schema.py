"""Conversion of JSON to CEL values by schema, as JSON alone has fewer types."""

from typing import Any

import pytest

from onejob.cel import EvaluationError, compile_rule, declare, rule_variables


def holds(schema: dict[str, Any], rule: str, value: Any, old: Any = None) -> bool:
    declared = declare(schema)
    assert declared is not None
    program = compile_rule(rule, rule_variables(declared))
    found: bool = program.evaluate({"self": value, "oldSelf": old})
    return found


def obj(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


NUMBER = {"type": "number"}
TIME = {"type": "string", "format": "date-time"}
DURATION = {"type": "string", "format": "duration"}


def test_an_integer_in_a_number_field_is_a_double() -> None:
    schema = obj(n=NUMBER, many={"type": "array", "items": NUMBER})
    assert holds(schema, "type(self.n) == double && self.n / 2.0 == 0.5", {"n": 1})
    value = {"many": [1, 2]}
    assert holds(schema, "self.many.all(x, type(x) == double) && self.many.sum() == 3.0", value)
    assert holds(schema, "self.many.map(x, x / 2.0) == [0.5, 1.0]", value)


def test_times_are_compared_as_times() -> None:
    schema = obj(a=TIME, b=TIME, d=DURATION)
    value = {"a": "2020-01-01T00:00:00Z", "b": "2020-01-01T01:00:00+01:00", "d": "60m"}
    assert holds(schema, "self.a == self.b && self.d == duration('1h')", value)
    assert holds(schema, "self == oldSelf", value, {**value, "b": value["a"], "d": "1h"})
    assert holds(schema, "string(self.b) == '2020-01-01T01:00:00+01:00'", value)
    assert holds(schema, "self.?b.orValue(self.a) == self.a", value)
    nested = {"type": "array", "items": schema}
    assert holds(nested, "self.all(x, x.a.getFullYear() == 2020)", [value])
    assert holds(nested, "self.filter(x, x.a == x.b)[0].d.getHours() == 1", [value])
    with pytest.raises(EvaluationError):
        holds(schema, "self.a == self.b", {"a": "yesterday", "b": "now"})


def test_a_date_and_bytes() -> None:
    schema = obj(day={"type": "string", "format": "date"}, raw={"type": "string", "format": "byte"})
    value = {"day": "2020-01-02", "raw": "aMOp"}
    assert holds(schema, "self.day == timestamp('2020-01-02T00:00:00Z')", value)
    assert holds(schema, "self.raw == b'h\\303\\251' && self.raw.size() == 3", value)


def test_a_set_is_equal_in_any_order() -> None:
    schema = {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}
    assert holds(schema, "self == oldSelf", ["a", "b"], ["b", "a"])
    assert not holds(schema, "self == oldSelf", ["a", "b"], ["b", "c"])
    assert holds(schema, "self + oldSelf == ['a', 'b', 'c']", ["a", "b"], ["b", "c"])
    del schema["x-kubernetes-list-type"]
    assert not holds(schema, "self == oldSelf", ["a", "b"], ["b", "a"])


def test_a_map_list_is_equal_in_any_order_and_merges_by_its_keys() -> None:
    item = obj(k={"type": "string"}, v={"type": "integer"})
    schema = {
        "type": "array",
        "items": item,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["k"],
    }
    one, two = {"k": "1", "v": 1}, {"k": "2", "v": 2}
    assert holds(schema, "self == oldSelf", [one, two], [two, one])
    assert not holds(schema, "self == oldSelf", [one, two], [two, {**one, "v": 3}])
    assert holds(schema, "(self + oldSelf).size() == 2", [one], [two, {**one, "v": 3}])
    assert holds(obj(l=schema), "self == oldSelf", {"l": [one, two]}, {"l": [two, one]})


def test_a_null_field_of_an_object_is_absent_and_one_of_a_map_is_not() -> None:
    assert holds(obj(x={"type": "string", "nullable": True}), "!has(self.x)", {"x": None})
    labels = {"type": "object", "additionalProperties": {"type": "string", "nullable": True}}
    assert holds(obj(m=labels), "has(self.m.x)", {"m": {"x": None}})


def test_escaped_names_find_their_properties() -> None:
    schema = obj(**{"a-b": {"type": "integer"}, "if": {"type": "integer"}})
    assert holds(schema, "self.a__dash__b == 1 && self.__if__ == 2", {"a-b": 1, "if": 2})
    assert holds(schema, "has(self.a__dash__b) && !has(self.__if__)", {"a-b": 1})
    assert holds(schema, "self.?a__dash__b.value() == 1", {"a-b": 1})
