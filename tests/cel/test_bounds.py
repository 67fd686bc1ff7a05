"""Malicious rules and values: evaluation ends soon, with one clear error."""

import inspect
import sys
from collections.abc import Callable
from typing import Any

import pytest

from onejob.cel import (
    PER_CALL_LIMIT,
    Budget,
    CompileError,
    CostLimitExceeded,
    EvaluationError,
    compile_expression,
    compile_rule,
    declare,
    rule_variables,
)
from onejob.cel.parser import DEEPEST_NESTING, DEEPEST_TREE
from tests.cel.asking import ANY, compile_any


@pytest.mark.parametrize(
    "source",
    [
        "(" * 5000 + "1" + ")" * 5000,
        "[" * 5000 + "]" * 5000,
        "{1:" * 5000 + "1" + "}" * 5000,
        "true ? 1 : " * 5000 + "1",
        "1" + " + 1" * 5000,
        "self" + ".a" * 5000,
        "self" + "[0]" * 5000,
        "size(" * 5000 + "self" + ")" * 5000,
        "self" + ".map(x, x" * 5000 + ")" * 5000,
        "self" + ".all(x, x)" * 5000,
        "((((1+1)+1)+1)+1)" + "+(1)" * 5000,
        "(" * 40 + "1" + "+1+1+1+1+1)" * 40,
    ],
    ids=lambda source: source[:20],
)
def test_deep_expressions_are_refused(source: str) -> None:
    with pytest.raises(CompileError, match="recursion limit exceeded"):
        compile_any(source)


@pytest.mark.parametrize(("count", "flips"), [(5000, False), (5001, True)])
def test_a_long_chain_of_one_sign_is_no_deep_one(count: int, flips: bool) -> None:
    assert compile_any("!" * count + "(self == 1)").evaluate({"self": 1}) is not flips
    for source in ("-" * count + "1", "- " * count + "self"):
        assert compile_any(source).evaluate({"self": 1}) == (-1 if flips else 1)


def test_a_long_chain_of_conditions_is_no_deep_one() -> None:
    assert compile_any(" && ".join(["self == 1"] * 3000)).evaluate({"self": 1}) is True
    assert compile_any(" || ".join(["self == 1"] * 3000)).evaluate({"self": 2}) is False


def _at_the_limits() -> list[str]:
    nested = DEEPEST_NESTING - 1
    return [
        "(" * nested + "1" + ")" * nested,
        "!" * nested + "true",
        "1" + "+1" * (DEEPEST_TREE - 2),
        "self" + ".a" * (DEEPEST_TREE - 2),
        "[" * nested + "self == 1 + 2 * 3" + "]" * nested,
        "dyn(true) ? 1 : " * nested + "1",
    ]


@pytest.mark.parametrize("source", _at_the_limits(), ids=lambda source: source[:20])
def test_deepest_allowed_expression_fits_on_stack(source: str) -> None:
    def nested(frames: int, action: Callable[[], Any]) -> Any:
        return action() if not frames else nested(frames - 1, action)

    value: dict[str, Any] = {"a": 1}
    for _ in range(DEEPEST_TREE):
        value = {"a": value}
    # A caller that is 150 calls deep itself.
    program = nested(150, lambda: compile_any(source))
    nested(150, lambda: program.evaluate({"self": value}))


def test_a_caller_at_the_end_of_its_stack_gets_an_error_of_ours() -> None:
    def nested(frames: int) -> None:
        if frames:
            nested(frames - 1)
        else:
            compile_any("[[[[[[[[[[[[[[[[self]]]]]]]]]]]]]]]]")

    used = len(inspect.stack(0))
    with pytest.raises(CompileError, match="recursion limit exceeded"):
        nested(sys.getrecursionlimit() - used - 60)


def test_a_long_text_is_refused() -> None:
    with pytest.raises(CompileError, match="code point size exceeds limit: size: 100013"):
        compile_any("self == '" + "x" * 100_003 + "'")


@pytest.mark.parametrize(
    "source",
    [
        "self.all(a, self.all(b, self.all(c, self.all(d, true))))",
        "self.map(a, self.map(b, self.map(c, c))).size() > 0",
        "self.filter(a, self.exists(b, self.exists(c, c < a))).size() > 0",
        "self.all(a, self == oldSelf)",
        "self.all(a, [self, self, self] == [oldSelf, oldSelf, oldSelf])",
        "self.all(a, self + self + self != [])",
        "self.all(a, !(2000 in self))",
        "self.all(a, lists.range(100000).size() > 0)",
        "self.map(a, self.map(b, [a, b])).flatten().flatten().size() > 0",
        "self.all(a, sets.equivalent(self, oldSelf))",
        "self.map(x, [x]).distinct().size() > 0",
        "self.all(a, self.sortBy(x, -x).size() > 0)",
        "self.all(a, self.all(b, self.map(c, string(c)).join('xxxxxxxxxx') != ''))",
        "self.transformMap(i, v, self.transformMap(j, w, self)).size() > 0",
        "optional.of(1).optMap(x, self.all(a, self.all(b, self.all(c, c >= 0)))).value()",
    ],
)
def test_a_dear_rule_is_stopped_at_the_limit(source: str) -> None:
    values = list(range(2000))
    budget = Budget()
    with pytest.raises(CostLimitExceeded, match="actual cost limit exceeded"):
        compile_any(source).evaluate({"self": values, "oldSelf": list(values)}, budget)
    assert Budget().remaining - budget.remaining > PER_CALL_LIMIT


@pytest.mark.parametrize(
    "source",
    [
        "self.replace('', self).size()",
        "self.replace('a', self).size()",
        "self.split('').join(self).size()",
        "lists.range(9223372036854775807).size()",
        "lists.range(1000000000).map(x, x).size()",
        "'%s%s%s%s%s%s%s%s%s%s%s%s'.format([self, self, self, self, self, self, self, self, self,"
        " self, self, self]).size()",
        "lists.range(100).map(x, self + self).join('').size()",
    ],
)
def test_nothing_large_is_made_out_of_something_small(source: str) -> None:
    with pytest.raises(CostLimitExceeded):
        compile_any(source).evaluate({"self": "a" * 1_000_000})


@pytest.mark.parametrize(
    "source",
    [
        "quantity('1e999999999').isGreaterThan(quantity('1'))",
        "quantity('1e-999999999').isLessThan(quantity('1'))",
        "!isQuantity(self)",
        "!isSemver(self)",
        "!isIP(self)",
        "!isCIDR(self)",
        "!isURL(self)",
        "format.dns1123Subdomain().validate(self).hasValue()",
        "format.labelValue().validate(self).hasValue()",
        "!self.matches('^(a+)+$')",
        "!self.matches('(a|aa)*b')",
        "self.find('(x+x+)+y') == ''",
    ],
)
def test_texts_that_are_slow_to_read_elsewhere_are_not_here(source: str) -> None:
    text = "a" * 100_000 + "!"
    assert compile_any(source).evaluate({"self": text}) is True


@pytest.mark.parametrize(
    "source",
    ["int(self)", "uint(self)", "double(self + 'x')", "duration(self)", "timestamp(self)"],
)
def test_a_number_of_many_digits_is_an_error(source: str) -> None:
    with pytest.raises(EvaluationError):
        compile_any(source).evaluate({"self": "1" * 100_000})


def test_a_pattern_that_needs_much_memory_is_refused() -> None:
    with pytest.raises(EvaluationError, match="error parsing regexp"):
        compile_any("'a'.matches(self)").evaluate({"self": "((a{100}){100}){100}"})
    with pytest.raises(EvaluationError, match="expression too long"):
        compile_any("'a'.matches(self)").evaluate({"self": "a" * 30_000})


def test_the_cost_of_all_rules_of_an_object_is_added_up() -> None:
    budget = Budget(remaining=10)
    program = compile_any("self == 1")
    program.evaluate({"self": 1}, budget)
    assert budget.remaining == 8
    for _ in range(5):
        program.evaluate({"self": 1}, budget)
    assert budget.exhausted


@pytest.mark.parametrize(
    ("source", "cost"),
    [
        # Counted by upstream for the same values.
        ("self.n == 1", 3),
        ("has(self.n)", 1),
        ("has(self.o.x)", 2),
        ("!has(self.o.x)", 3),
        ("self.s.size() == 3", 4),
        ("self.l.all(x, x > 0)", 2 + 1 + 3 * (3 + 2)),
        ("self.n == 1 || self.n == 2", 3),
        ("self.s.matches('^a')", 3),
        ("self.s in ['a', 'abc']", 2),
    ],
)
def test_cost_is_counted_as_upstream_does(source: str, cost: int) -> None:
    budget = Budget()
    value = {"n": 1, "s": "abc", "o": {}, "l": [1, 2, 3]}
    compile_expression(source, ANY).evaluate({"self": value}, budget)
    assert Budget().remaining - budget.remaining == cost


def test_each_pair_inside_lists_is_charged_unlike_upstream() -> None:
    budget = Budget()
    compile_any("self == oldSelf").evaluate({"self": [1] * 50, "oldSelf": [1] * 50}, budget)
    # Both variables, a tenth of the length as upstream, and the pairs.
    assert Budget().remaining - budget.remaining == 2 + 5 + 50


def _estimate(rule: str, **limits: int) -> int:
    item = {"type": "string", "maxLength": limits.get("maxLength", 10)}
    schema: dict[str, Any] = {"type": "array", "items": item}
    if "maxItems" in limits:
        schema["maxItems"] = limits["maxItems"]
    declared = declare(schema)
    assert declared is not None
    return compile_rule(rule, rule_variables(declared)).estimated_cost


def test_cost_estimate_grows_with_schema_limits() -> None:
    rule = "self.all(x, self.all(y, x != y))"
    small, large = _estimate(rule, maxItems=10), _estimate(rule, maxItems=100)
    assert 80 < large / small < 120
    assert _estimate(rule) > 10_000_000
    texts = "self.all(x, x.contains(self[0]))"
    assert _estimate(texts, maxItems=10, maxLength=10_000) > 1000 * _estimate(texts, maxItems=10)


@pytest.mark.parametrize(
    ("rule", "cost"),
    [
        # Estimated by upstream for the same schema.
        ("self.words.isSorted()", 329854432052),
        ("self.words.join() == 'abc'", 329852964048),
        ("'a' in self.labels", 3),
        ("has(self.labels.x)", 2),
        ("self.words.all(x, x == 'a')", 5242878),
        ("self.words.exists(x, x == 'a')", 6291453),
        ("self.words.filter(x, x == 'a').size() == 1", 15728640),
        ("self.words.map(x, x).size() == 1", 13631490),
        ("self.words.exists_one(x, x == 'a')", 4194304),
        ("self.text.matches('a')", 314575),
        ("self.text.contains('a')", 314575),
        ("self.text == 'abc'", 3),
        ("size(self.words) < 3", 4),
        ("self.number == 1", 2),
        ("self.number < 10.0", 3),
    ],
)
def test_the_estimate_is_upstreams(rule: str, cost: int) -> None:
    text = {"type": "string"}
    properties = {
        "words": {"type": "array", "items": text},
        "labels": {"type": "object", "additionalProperties": text},
        "text": text,
        "number": {"type": "integer"},
    }
    declared = declare({"type": "object", "properties": properties})
    assert declared is not None
    assert compile_rule(rule, rule_variables(declared)).estimated_cost == cost


def test_the_estimate_is_not_below_the_cost() -> None:
    rule = "self.all(x, x.matches('^[a-z]+$') && self.exists(y, y == x + x)) || size(self) > 3"
    declared = declare(
        {"type": "array", "maxItems": 5, "items": {"type": "string", "maxLength": 8}}
    )
    assert declared is not None
    program = compile_rule(rule, rule_variables(declared))
    budget = Budget()
    program.evaluate({"self": ["abcdefgh"] * 5}, budget)
    assert Budget().remaining - budget.remaining <= program.estimated_cost
