"""Oracle: Google's own evaluator (cel-cpp)."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from cel_expr_python import cel
from cel_expr_python.ext import ext_optional, ext_strings

_TEXT: Final = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
_HAS: Final = re.compile(rf"{_TEXT}|\b(has)\(")
_BRACKETS: Final = re.compile(rf"{_TEXT}|[()]")
_SCALARS: Final = ("null_type", "bool", "int", "uint", "double", "string", "bytes")


class Failure:
    """An expression without a value; error messages are not compared."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Failure)

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "Failure()"


@lru_cache(maxsize=1)
def _environment() -> Any:
    variables = dict.fromkeys(("self", "oldSelf"), cel.Type.DYN)
    extensions = [ext_optional.ExtOptional(), ext_strings.ExtStrings()]
    return cel.NewEnv(variables=variables, extensions=extensions)


@lru_cache(maxsize=512)
def _compiled(expression: str) -> Any:
    # Kubernetes compares numbers of different types; the oracle does without its type check.
    return _environment().compile(_as_upstream(expression), disable_check=True)


def ask(expression: str, values: Mapping[str, Any]) -> Any:
    result = _compiled(expression).eval(data=dict(values))
    if result.type() == cel.Type.ERROR:
        return Failure()
    plain = result.plain_value()
    return bytes(plain) if isinstance(plain, bytearray) else plain


def _as_upstream(expression: str) -> str:
    """Return the expression with the meaning that cel-go gives to `has`, in the oracle's terms.

    `has('a'.x)` is false in cel-go, for any scalar or null, and an error in the oracle. onejob is
    compared with cel-go itself by the scenario `admission.members_of_values_without_members`.
    """
    parts: list[str] = []
    rest = 0
    for found in _HAS.finditer(expression):
        if found[1] is None or found.start() < rest:
            # A text, or a `has` within the operand of another, which is rewritten with it.
            continue
        end = _closing(expression, found.end())
        operand, _, field = expression[found.end() : end].rpartition(".")
        inner = _as_upstream(operand)
        scalar = " || ".join(f"type({inner}) == {name}" for name in _SCALARS)
        kept = expression[rest : found.start()]
        parts.append(f"{kept}({scalar} ? false : has({inner}.{field}))")
        rest = end + 1
    return "".join(parts) + expression[rest:]


def _closing(text: str, start: int) -> int:
    """Return the position of the parenthesis that closes the one before `start`."""
    depth = 1
    for found in _BRACKETS.finditer(text, start):
        depth += {"(": 1, ")": -1}.get(found[0], 0)
        if depth == 0:
            return found.start()
    raise ValueError(f"unbalanced parentheses in {text}")
