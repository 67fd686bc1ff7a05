"""Validation of constant arguments at compile time."""

from onejob.cel.ast import Call, Literal
from onejob.cel.errors import EvaluationError
from onejob.cel.library.regex import compile_pattern
from onejob.cel.library.times import parse_duration, parse_timestamp


def check_literal_argument(node: Call) -> tuple[int, str] | None:
    """Return position and message if a constant duration, timestamp or pattern is invalid.

    Returns None otherwise.
    """
    if not node.arguments:
        return None
    at = len(node.arguments) - 1 if node.function == "matches" else 0
    argument = node.arguments[at]
    if not isinstance(argument, Literal) or type(argument.value) is not str:
        return None
    try:
        match node.function:
            case "duration" if node.target is None:
                what = "duration"
                parse_duration(argument.value)
            case "timestamp" if node.target is None:
                what = "timestamp"
                parse_timestamp(argument.value)
            case "matches" | "find" | "findAll":
                what = node.function
                compile_pattern(argument.value)
            case _:
                pass
    except EvaluationError:
        return argument.position, f"invalid {what} argument"
    return None
