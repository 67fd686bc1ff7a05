"""`when` of a task: a CEL expression over the states and results of earlier tasks."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from onejob.cel import CompileError, CostLimitExceeded, EvaluationError, Program, compile_rule
from onejob.cel.ast import Has, Identifier, Index, Literal, Node, Select, children
from onejob.cel.parser import parse
from onejob.cel.types import STRING, Field, Type, map_of

#: Characters of an expression.
MAX_WHEN_LENGTH: Final = 4096

_TASK: Final = Type(
    "object",
    name="task",
    fields={"state": Field("state", STRING), "results": Field("results", map_of(STRING, STRING))},
    min_bytes=2,
)
_VARIABLES: Final = {"tasks": Type("map", (STRING, _TASK), max_size=1000, min_bytes=2)}


class WhenError(Exception):
    """The expression has no value; the message has the reason."""


@dataclass(frozen=True, slots=True)
class Mention:
    """Use of one task in an expression, and of one of its results if it is named."""

    task: str
    result: str | None
    #: Source offset.
    position: int
    #: Whether only the presence of the result is tested.
    tests_presence: bool = False


def compile_when(source: str) -> Program:
    """Return the compiled expression. Raises CompileError with position and reason."""
    return compile_rule(source, _VARIABLES)


def evaluate_when(program: Program, tasks: Mapping[str, Mapping[str, Any]]) -> bool:
    """Evaluate with `{state, results}` of the earlier tasks by name. Raises WhenError."""
    try:
        return bool(program.evaluate({"tasks": tasks}))
    except (EvaluationError, CostLimitExceeded) as error:
        raise WhenError(str(error)) from None


def mentions(source: str) -> list[Mention]:
    """Return the tasks and results that a valid expression names literally."""
    found: list[Mention] = []
    waiting: list[tuple[Node, bool]] = [(parse(source), False)]
    while waiting:
        node, tested = waiting.pop()
        member = _member(node)
        if member is not None:
            operand, name = member
            result = _task_of_results(operand)
            if result is not None:
                presence = tested or isinstance(node, Has)
                found.append(Mention(result[0], name, result[1], presence))
                continue
            if isinstance(operand, Identifier) and operand.name == "tasks":
                found.append(Mention(name, None, node.position))
                continue
        waiting.extend((child, False) for child in children(node))
    return found[::-1]


def _member(node: Node) -> tuple[Node, str] | None:
    """Return operand and name of `operand.name`, `operand["name"]` or `has(operand.name)`."""
    match node:
        case Select() | Has():
            return node.operand, node.field_name
        case Index(key=Literal(value=str() as name)):
            return node.operand, name
        case _:
            return None


def _task_of_results(node: Node) -> tuple[str, int] | None:
    """Return the name and offset of `tasks.NAME.results`."""
    if not isinstance(node, Select) or node.field_name != "results":
        return None
    task = _member(node.operand)
    if task is None or not isinstance(task[0], Identifier) or task[0].name != "tasks":
        return None
    return task[1], node.operand.position


__all__ = [
    "MAX_WHEN_LENGTH",
    "CompileError",
    "Mention",
    "WhenError",
    "compile_when",
    "evaluate_when",
    "mentions",
]
