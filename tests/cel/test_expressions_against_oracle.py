"""Generated expressions: same result here and in Google's own evaluator."""

from typing import Any

from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from onejob.cel import CompileError
from onejob.cel.parser import parse
from tests.cel import expressions, oracle
from tests.cel.asking import compile_any, result_of

_VALUES: dict[str, Any] = {"self": expressions.SELF, "oldSelf": expressions.SELF}


def _agree(expression: str) -> None:
    # Expressions may name `x` outside of any macro: then it is bound here.
    whole = f"[dyn(2)].map(x, {expression})[0]"
    try:
        program = compile_any(whole)
    except CompileError:
        # The oracle has no type check, ours has. Hypothesis complains if this happens often.
        reject()
    found, expected = result_of(program, _VALUES), oracle.ask(whole, _VALUES)
    assert type(found) is type(expected)
    assert found == expected


@given(expressions.BOOLS)
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_conditions(expression: str) -> None:
    _agree(expression)


@given(expressions.INTS)
@settings(max_examples=150, deadline=None)
def test_arithmetic(expression: str) -> None:
    _agree(expression)


@given(expressions.STRINGS)
@settings(max_examples=50, deadline=None)
def test_strings(expression: str) -> None:
    _agree(expression)


@given(st.text(alphabet="selfx.[](){}?:,'\"\\ \n0123ue+-*/%!&|<>=é", max_size=40))
@settings(max_examples=300, deadline=None)
def test_any_text_is_parsed_or_refused_with_a_place(text: str) -> None:
    try:
        parse(text)
    except CompileError as error:
        issue = error.issues[0]
        assert issue.line >= 1
        assert issue.column >= 1
        assert str(issue).startswith(f"ERROR: <input>:{issue.line}:{issue.column}: ")
