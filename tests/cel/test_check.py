"""Type checks of rules: errors at compile time, with their messages."""

from typing import Any

import pytest

from onejob.cel import CompileError, compile_message, compile_rule, declare, rule_variables
from onejob.cel.types import Type

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "count": {"type": "integer"},
        "ratio": {"type": "number"},
        "name": {"type": "string"},
        "when": {"type": "string", "format": "date-time"},
        "took": {"type": "string", "format": "duration"},
        "data": {"type": "string", "format": "byte"},
        "port": {"x-kubernetes-int-or-string": True},
        "tags": {"type": "array", "items": {"type": "string"}},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "inner": {"type": "object", "properties": {"x": {"type": "integer"}}},
        "other": {"type": "object", "properties": {"x": {"type": "integer"}}},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "namespace": {"type": "string"},
        "a-b.c/d__e": {"type": "integer"},
        "a b": {"type": "integer"},
        "untyped": {"x-kubernetes-preserve-unknown-fields": True},
    },
}


def declared(schema: dict[str, Any] = SCHEMA) -> Type:
    found = declare(schema)
    assert found is not None
    return found


def refused(rule: str) -> str:
    with pytest.raises(CompileError) as caught:
        compile_rule(rule, rule_variables(declared()))
    return str(caught.value)


def test_an_unknown_field_is_shown_where_it_stands() -> None:
    assert refused("self.nam == 'x'") == (
        "ERROR: <input>:1:5: undefined field 'nam'\n | self.nam == 'x'\n | ....^"
    )


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("self.count == 'x'", "1:12: found no matching overload for '_==_' applied to '(int, s"),
        ("self.count == self.ratio", "applied to '(int, double)'"),
        ("self.count + 1u == 3", "'_+_' applied to '(int, uint)'"),
        ("self.inner == self.other", "'_==_' applied to '(selfType.inner, selfType.other)'"),
        ("self.name.size(1) == 1", "'size' applied to 'string.(int)'"),
        ("other == 1", "1:1: undeclared reference to 'other' (in container '')"),
        ("nosuch(1)", "1:7: undeclared reference to 'nosuch' (in container '')"),
        ("self.count.all(x, x)", "1:5: expression of type 'int' cannot be range of a compre"),
        ("self.count.x == 1", "1:11: type 'int' does not support field selection"),
        ("self.tags['x'] == 'y'", "'_[_]' applied to '(list(string), string)'"),
        ("self.untyped == 1", "undefined field 'untyped'"),
        ("self.free.x == 1", "undefined field 'x'"),
        ("[1, 'a'].size() == 2", "1:5: expected type 'int' but found 'string'"),
        ("self.count ? true : false", "'_?_:_' applied to '(int, bool, bool)'"),
        ("true ? 1 : 'x'", "'_?_:_' applied to '(bool, int, string)'"),
        ("self.name && true", "1:5: expected type 'bool' but found 'string'"),
        ("self.tags.all(t, t)", "1:18: expected type 'bool' but found 'string'"),
        ("self.tags.filter(t, t).size() == 1", "'_?_:_' applied to '(string, list(string), list("),
        ("duration('1x') == self.took", "1:10: invalid duration argument"),
        ("timestamp('x') == self.when", "1:11: invalid timestamp argument"),
        ("self.name.matches('(')", "1:19: invalid matches argument"),
        ("self.count", "cel expression must evaluate to a bool"),
        ("self.port", "cel expression must evaluate to a bool"),
        ("has(self)", "invalid argument to has() macro"),
        ("self.tags.all(1, true)", "argument must be a simple name"),
        ("self.tags.all(a, a, true)", "duplicate variable name: a"),
        ("while == 1", "reserved identifier: while"),
        ("self.count ==", "1:14: Syntax error: mismatched input '<EOF>'"),
        ("self.name == 'x", "Syntax error: token recognition error at: ''x'"),
        ("self.count == 9223372036854775808", "invalid int literal"),
        ("self.name == '\\q'", "invalid escape sequence"),
        ("cel.bind(x, 1, x == 1)", "undeclared reference to"),
    ],
)  # fmt: skip
def test_a_rule_that_does_not_fit_is_refused_in_upstreams_words(rule: str, message: str) -> None:
    assert message in refused(rule)


def test_all_type_errors_are_reported() -> None:
    with pytest.raises(CompileError) as caught:
        compile_rule("self.x == 1 ||\n  self.y == 2", rule_variables(declared()))
    assert [(issue.line, issue.column) for issue in caught.value.issues] == [(1, 5), (2, 7)]
    assert str(caught.value.issues[1]).endswith(" |   self.y == 2\n | ......^")


@pytest.mark.parametrize(
    "rule",
    [
        "self.count < self.ratio",
        "self.port == 1 || self.port == '1%' || self.port < 3",
        "type(self.port) == int ? self.port < 5 : self.port.endsWith('%')",
        "self.when > timestamp('2020-01-01T00:00:00Z') && self.took < duration('1h')",
        "self.data.size() == 3",
        "self.labels.all(k, self.labels[k] != '') && self.labels.x == 'y' && has(self.labels.x)",
        "self.inner == oldSelf.inner",
        "self.namespace == self.__namespace__",
        "self.a__dash__b__dot__c__slash__d__underscores__e == 1",
        "self.tags.map(t, t.size()).sum() > 3",
        "self.?name.orValue('x') == 'y'",
        "[].size() == 0 && {}.size() == 0 && [[], [1]].size() == 2",
        "'%s has %d'.format([self.name, self.count]) != ''",
        "self.tags.exists(t, t in ['a', 'b']) && 'a' in self.labels",
        "self.inner.x == 1 // a comment",
        "self.tags.first().orValue('') == ''",
        "dyn(self.inner) == dyn(1)",
    ],
)
def test_a_rule_that_fits_is_accepted(rule: str) -> None:
    compile_rule(rule, rule_variables(declared()))


def test_a_field_whose_name_cannot_be_escaped_is_not_seen() -> None:
    assert "a b" not in {field.property_name for field in declared().fields.values()}


def test_a_rule_of_another_type_is_refused_as_a_whole() -> None:
    assert refused("self.count") == "cel expression must evaluate to a bool"


def test_a_message_is_a_string() -> None:
    variables = rule_variables(declared())
    program = compile_message("'at most ' + string(self.count)", variables)
    assert program.evaluate({"self": {"count": 3}}) == "at most 3"
    with pytest.raises(CompileError, match="messageExpression must evaluate to a string"):
        compile_message("self.count", variables)


def test_the_root_of_a_resource_shows_its_name_whatever_the_schema_says() -> None:
    schema = {"type": "object", "properties": {"metadata": {"type": "object"}}}
    found = declare(schema, resource_root=True)
    assert found is not None
    rule = "self.metadata.name.size() < 64 && self.kind == 'X' && self.apiVersion != ''"
    program = compile_rule(rule, rule_variables(found))
    value = {"metadata": {"name": "x"}, "kind": "X", "apiVersion": "v1"}
    assert program.evaluate({"self": value}) is True
    with pytest.raises(CompileError, match="undefined field 'labels'"):
        compile_rule("has(self.metadata.labels)", rule_variables(found))


def test_an_optional_old_value() -> None:
    variables = rule_variables(declared(), optional_old_self=True)
    program = compile_rule("!oldSelf.hasValue() || oldSelf.value().count <= self.count", variables)
    assert program.evaluate({"self": {"count": 1}}) is True
    assert program.evaluate({"self": {"count": 1}, "oldSelf": {"count": 2}}) is False
    chained = compile_rule("oldSelf.count.orValue(0) <= self.count", variables)
    assert chained.evaluate({"self": {"count": 1}, "oldSelf": {"count": 2}}) is False
