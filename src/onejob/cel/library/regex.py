"""Regular expressions by RE2.

Patterns have the same meaning as upstream, and none takes exponential time.
"""

from functools import lru_cache
from typing import Any

from onejob.cel.errors import CostLimitExceeded, EvaluationError
from onejob.cel.functions import Cost, Library

LIBRARY = Library()

_MAX_PATTERN_LENGTH = 20_000
_MEMORY = 8 << 20


@lru_cache(maxsize=256)
def compile_pattern(pattern: str) -> Any:
    """Return the pattern compiled by RE2, from a cache.

    Raises EvaluationError, worded as by Go, if it is invalid or too long.
    """
    # Imported when the first pattern is compiled: most rules have none.
    import re2

    if len(pattern) > _MAX_PATTERN_LENGTH:
        raise EvaluationError("error parsing regexp: expression too long")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY
    try:
        return re2.compile(pattern, options=options)
    except (re2.error, UnicodeEncodeError) as error:
        reason = error.args[0] if error.args else ""
        if isinstance(reason, bytes):
            reason = reason.decode(errors="replace")
        raise EvaluationError(f"error parsing regexp: {_go_message(reason)}") from error


#: RE2's error messages, and the wording of Go's regexp for the same problems.
_PROBLEMS = {
    "bad repetition operator": "invalid nested repetition operator",
    "invalid named capture group": "invalid named capture",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid repetition size": "invalid repeat count",
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "no argument for repetition operator": "missing argument to repetition operator",
    "trailing \\": "trailing backslash at end of expression",
}


def _go_message(reason: str) -> str:
    """Return an error message of RE2 in the wording of Go's regexp."""
    problem, _, part = reason.partition(": ")
    return f"{_PROBLEMS.get(problem, problem)}: `{part}`"


def _search(pattern: str, text: str) -> Any:
    """Return the first match or None. Raises EvaluationError."""
    try:
        return compile_pattern(pattern).search(text)
    except UnicodeEncodeError as error:
        raise EvaluationError("invalid UTF-8 in string") from error


@LIBRARY.add("string..matches(string) -> bool", "matches(string, string) -> bool", cost=Cost.REGEX)
def matches(text: str, pattern: str) -> bool:
    return _search(pattern, text) is not None


@LIBRARY.add("string..find(string) -> string", cost=Cost.REGEX)
def find(text: str, pattern: str) -> str:
    match = _search(pattern, text)
    return "" if match is None else match.group(0)


_MAX_MATCHES = 1_000_000


@LIBRARY.add(
    "string..findAll(string) -> list<string>",
    "string..findAll(string, int) -> list<string>",
    cost=Cost.REGEX,
)
def find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    _search(pattern, "")
    found: list[str] = []
    try:
        for match in compile_pattern(pattern).finditer(text):
            if len(found) == limit:
                break
            if len(found) >= _MAX_MATCHES:
                raise CostLimitExceeded
            found.append(match.group(0))
    except UnicodeEncodeError as error:
        raise EvaluationError("invalid UTF-8 in string") from error
    return found
