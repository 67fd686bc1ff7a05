"""Oracle: Google's own evaluator (cel-cpp)."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from cel_expr_python import cel
from cel_expr_python.ext import ext_optional, ext_strings


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
    return _environment().compile(expression, disable_check=True)


def ask(expression: str, values: Mapping[str, Any]) -> Any:
    result = _compiled(expression).eval(data=dict(values))
    if result.type() == cel.Type.ERROR:
        return Failure()
    plain = result.plain_value()
    return bytes(plain) if isinstance(plain, bytearray) else plain


def is_stricter(expression: str, result: Any) -> bool:
    """Return whether cel-go may have a value where the oracle fails: `has('a'.x)` is false there.

    The differential scenario `admission.members_of_values_without_members` compares with cel-go.
    """
    return isinstance(result, Failure) and "has(" in expression
