"""Semantics of the language, case by case; each one is also evaluated by the oracle."""

from typing import Any

import pytest

from onejob.cel import CompileError, EvaluationError, compile_expression
from onejob.cel.types import DYN
from tests.cel import oracle
from tests.cel.asking import compile_any, evaluate, result_of
from tests.cel.oracle import Failure

FAILURE = Failure()
SELF = {"a": 1, "list": [1, 2, 3], "words": ["x", "yy"], "map": {"k": "v"}, "text": "héllo"}

CASES: list[tuple[str, Any]] = [
    # Errors are absorbed if the other operand decides.
    ("false && self.missing", False),
    ("self.missing && false", False),
    ("true && self.missing", FAILURE),
    ("self.missing || true", True),
    ("self.missing || false", FAILURE),
    ("dyn(1) && false", False),
    ("dyn(1) && true", FAILURE),
    ("self.list.all(x, x.y == 1 || x > 0)", True),
    ("[dyn(1), dyn(0), dyn('x')].exists(x, 1 / x == 1)", True),
    ("[0, 1].all(x, 1 / x == 2)", False),
    ("[0, 1].all(x, 1 / x == 1)", FAILURE),
    ("true ? 1 : self.missing", 1),
    ("self.missing ? 1 : 2", FAILURE),
    # Presence.
    ("has(self.a)", True),
    ("has(self.missing)", False),
    ("has(self.missing.deeper)", FAILURE),
    ("has(self.map.k)", True),
    ("has({'x': null}.x)", True),
    # Numbers.
    ("9223372036854775807 + 1", FAILURE),
    ("-9223372036854775808 - 1", FAILURE),
    ("-(-9223372036854775808)", FAILURE),
    ("-9223372036854775808 / -1", FAILURE),
    ("3037000500 * 3037000500", FAILURE),
    ("18446744073709551615u + 1u", FAILURE),
    ("0u - 1u", FAILURE),
    ("-7 / 2", -3),
    ("-7 % 2", -1),
    ("7 / 0", FAILURE),
    ("7 % 0", FAILURE),
    ("0x10", 16),
    ("1.0 / 0.0 > 1e300", True),
    ("1 < 1.5", True),
    ("dyn(1) == 1.0", True),
    ("dyn(1u) == 1", True),
    ("dyn('1') == 1", False),
    ("dyn(true) == 1", False),
    ("9007199254740993 > 9007199254740992.0", False),
    ("int(1.9) + int(-1.9)", 0),
    ("int(1e19)", FAILURE),
    ("int('12')", 12),
    ("int('1x')", FAILURE),
    ("double('1.5')", 1.5),
    ("uint(-1)", FAILURE),
    ("string(1.5) + string(true) + string(7u)", "1.5true7"),
    # Strings and bytes, by code points.
    ("size(self.text)", 5),
    ("bytes(self.text).size()", 6),
    ("string(b'\\xff')", FAILURE),
    ("'\\u00e9' == 'é'", True),
    ("r'\\d' == '\\\\d'", True),
    ('"""a\nb""".size()', 3),
    ("b'\\303\\251' == bytes('é')", True),
    ("'abc'.contains('bc') && 'abc'.startsWith('a') && 'abc'.endsWith('c')", True),
    ("'b' < 'bb' && 'Z' < 'a'", True),
    ("'abc'.matches('b+')", True),
    ("'abc'.matches('^b+$')", False),
    ("'a' + 1", FAILURE),
    # Lists and maps.
    ("2 in self.list && !(4 in self.list)", True),
    ("'k' in self.map", True),
    ("dyn(1.0) in [1]", True),
    ("self.list[1]", 2),
    ("self.list[3]", FAILURE),
    ("self.list[-1]", FAILURE),
    ("self.map['k'] + self.map.k", "vv"),
    ("{1: 'x'}[true]", FAILURE),
    ("{'a': [dyn(1), dyn({'b': 2})]} == {'a': [dyn(1), dyn({'b': dyn(2.0)})]}", True),
    ("[1, 2] + [3] == self.list", True),
    ("self.list.map(x, x * 2)", [2, 4, 6]),
    ("self.list.map(x, x > 1, x * 2)", [4, 6]),
    ("self.list.filter(x, x > 1)", [2, 3]),
    ("self.list.exists_one(x, x > 2)", True),
    ("self.list.exists_one(x, x > 1)", False),
    ("self.map.all(k, self.map[k] == 'v')", True),
    ("self.words.map(x, self.words.filter(y, y != x))", [["yy"], ["x"]]),
    ("self.list.all(self, self > 0)", True),
    # Types, times.
    ("type(1) == int && type('') == string && type([]) == list && type(null) == null_type", True),
    ("type(type(1)) == type", True),
    ("duration('1h30m') == duration('90m')", True),
    ("duration('1.5s').getMilliseconds()", 1500),
    ("duration('1x')", FAILURE),
    ("timestamp('2020-02-29T12:00:00Z') + duration('24h') == timestamp('2020-03-01T12:00:00Z')",
     True),
    ("timestamp('2020-01-01T00:00:00+01:00') < timestamp('2020-01-01T00:00:00Z')", True),
    ("timestamp('2020-01-01T00:00:00Z').getDayOfWeek()", 3),
    ("timestamp('2020-12-31T23:30:00Z').getFullYear('+01:00')", 2021),
    ("timestamp('2020-13-01T00:00:00Z')", FAILURE),
    ("timestamp(0).getDayOfYear()", 0),
    # Optional values.
    ("self.?a.orValue(7)", 1),
    ("self.?missing.orValue(7)", 7),
    ("self.?missing.deeper.orValue(7)", 7),
    ("self.list[?9].hasValue()", False),
    ("self.map[?'k'].value()", "v"),
    ("optional.none().value()", FAILURE),
    ("optional.ofNonZeroValue(0).hasValue()", False),
    ("optional.of(1).or(optional.of(2)).value()", 1),
    ("optional.of(2).optMap(x, x * 2).value()", 4),
    ("optional.of(2).optFlatMap(x, optional.none()).hasValue()", False),
    ("[1, ?optional.none(), ?optional.of(2)]", [1, 2]),
    ("{?'a': optional.none(), 'b': 1}", {"b": 1}),
    ("has(self.?map.k)", True),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "expected"), CASES)
def test_expression_evaluates_as_specified(expression: str, expected: Any) -> None:
    values = {"self": SELF, "oldSelf": SELF}
    if type(expected) is Failure:
        # Some errors are found before anything is evaluated.
        with pytest.raises((CompileError, EvaluationError)):
            compile_any(expression).evaluate(values)
    else:
        assert evaluate(expression, values) == expected


#: Where the oracle differs from Kubernetes, and why.
ORACLE_DIFFERS = {
    "duration('1.5s').getMilliseconds()": "cel-go answers all milliseconds, cel-cpp those of the "
    "last second",
}


@pytest.mark.parametrize(("expression", "expected"), CASES)
def test_evaluation_matches_oracle(expression: str, expected: Any) -> None:
    if expression in ORACLE_DIFFERS:
        pytest.skip(ORACLE_DIFFERS[expression])
    found = oracle.ask(expression, {"self": SELF, "oldSelf": SELF})
    assert found == expected


def test_comprehensions_with_two_variables() -> None:
    table = {
        "self.list.all(i, v, v == i + 1)": True,
        "self.map.exists(k, v, k == 'k' && v == 'v')": True,
        "self.list.existsOne(i, v, i > 1)": True,
        "self.list.transformList(i, v, i * v)": [0, 2, 6],
        "self.list.transformList(i, v, i > 0, v)": [2, 3],
        "self.map.transformMap(k, v, v + k)": {"k": "vk"},
        "self.list.transformMap(i, v, i > 1, v)": {2: 3},
        "self.map.transformMapEntry(k, v, {v: k})": {"v": "k"},
        "self.list.transformMapEntry(i, v, {'same': v})": FAILURE,
    }
    assert {text: evaluate(text, {"self": SELF}) for text in table} == table


def test_an_unneeded_variable_need_not_be_given() -> None:
    program = compile_expression("self == 1", {"self": DYN, "oldSelf": DYN})
    assert program.evaluate({"self": 1}) is True
    assert program.used == {"self"}
    with pytest.raises(LookupError, match="needs the variable self"):
        program.evaluate({})


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("has(self.text.x)", False),
        ("has(self.none.x)", False),
        ("self.none.?x.hasValue()", False),
        ("self.text[?'x'].hasValue()", False),
    ],
)
def test_tests_for_members_of_scalars_are_false_as_in_cel_go(expression: str, value: bool) -> None:
    program = compile_any(expression)
    assert result_of(program, {"self": {"text": "a", "none": None}, "oldSelf": None}) is value


def test_members_of_scalars_are_missing_keys_as_in_cel_go() -> None:
    program = compile_expression("self.none.x", {"self": DYN})
    with pytest.raises(EvaluationError, match="no such key: x"):
        program.evaluate({"self": {"none": None}})


def test_literals_do_not_mix_dynamic_and_other_elements_as_in_kubernetes() -> None:
    with pytest.raises(CompileError, match="expected type 'string' but found 'dyn'"):
        compile_expression("['a', self.x]", {"self": DYN})
