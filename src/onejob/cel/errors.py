"""Compile-time and evaluation errors."""

from collections.abc import Sequence
from dataclasses import dataclass

#: Source lines longer than this are not quoted in an error.
_MAX_SNIPPET_LENGTH = 16384


@dataclass(frozen=True, slots=True)
class Issue:
    """One error in the text of an expression; `line` and `column` count from one.

    Line 0 means the expression as a whole.
    """

    message: str
    line: int = 0
    column: int = 0
    source_line: str = ""

    def __str__(self) -> str:
        if not self.line:
            return self.message
        text = f"ERROR: <input>:{self.line}:{self.column}: {self.message}"
        if len(self.source_line) > _MAX_SNIPPET_LENGTH:
            return text
        shown = self.source_line.replace("\t", " ")
        before = shown[: self.column - 1]
        under = "".join("." if ord(char) < 128 else "．" for char in before)
        at = shown[self.column - 1 : self.column]
        return f"{text}\n | {shown}\n | {under}{'^' if not at or ord(at) < 128 else '＾'}"


def issue_at(source: str, position: int, message: str) -> Issue:
    line_start = source.rfind("\n", 0, position) + 1
    line_end = source.find("\n", position)
    line = source[line_start : line_end if line_end >= 0 else len(source)]
    return Issue(message, source.count("\n", 0, position) + 1, position - line_start + 1, line)


class CompileError(Exception):
    """The expression is invalid; `issues` lists positions and reasons."""

    def __init__(self, issues: Sequence[Issue]) -> None:
        super().__init__("\n".join(str(issue) for issue in issues))
        self.issues = list(issues)


class WrongResult(CompileError):
    """The expression is valid, but its result is not of the required type."""


class EvaluationError(Exception):
    """The expression has no value for these variables."""


class CostLimitExceeded(Exception):
    """Evaluation aborted at the cost limit. Unlike EvaluationError, no operator absorbs it."""

    def __init__(self) -> None:
        super().__init__("operation cancelled: actual cost limit exceeded")
