"""Evaluation of one expression by our evaluator and by the oracle."""

from collections.abc import Mapping
from typing import Any

from onejob.cel import DYN, EvaluationError, Program, compile_expression
from onejob.cel.values import Duration, Timestamp, TypeValue
from tests.cel.oracle import Failure

ANY = {"self": DYN, "oldSelf": DYN}


def compile_any(expression: str) -> Program:
    return compile_expression(expression, ANY)


def evaluate(expression: str, values: Mapping[str, Any] | None = None) -> Any:
    return result_of(compile_any(expression), values or {})


def result_of(program: Program, values: Mapping[str, Any]) -> Any:
    try:
        result = program.evaluate(values)
    except EvaluationError:
        return Failure()
    if isinstance(result, (Timestamp, Duration)):
        return result.nanoseconds
    return result.name if isinstance(result, TypeValue) else result
