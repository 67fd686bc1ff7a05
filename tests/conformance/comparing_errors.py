"""Comparison of field errors with upstream's: same errors, messages and order."""

from collections.abc import Iterator, Sequence
from typing import Any

from onejob.wire.field_errors import FieldError
from tests.conformance.loader import with_value
from tests.conformance.verdict import Case, Verdict, compare


def compare_errors(case: Case, actual: Sequence[FieldError]) -> Verdict:
    expected = case["errors"]
    shown = [
        _shown(error.type, error.field, error.detail, str(error), recorded)
        for error, recorded in zip(actual, _padded(expected, len(actual)), strict=True)
    ]
    wanted = [_shown(e["type"], e["field"], e["detail"], e["message"], e) for e in expected]
    return compare("errors", wanted, shown)


def error_corruptions(case: Case) -> Iterator[tuple[str, Case]]:
    for i, error in enumerate(case["errors"]):
        yield "errors[].type", with_value(case, ("errors", i, "type"), "FieldValueElse")
        yield "errors[].field", with_value(case, ("errors", i, "field"), error["field"] + "x")
        yield "errors[].detail", with_value(case, ("errors", i, "detail"), error["detail"] + "x")
        if not error.get("badValueOmitted"):
            corrupted = with_value(case, ("errors", i, "message"), error["message"] + "x")
            yield "errors[].message", corrupted
        missing = [*case["errors"][:i], *case["errors"][i + 1 :]]
        yield "errors: one too few", with_value(case, ("errors",), missing)
    invented = {"type": "FieldValueInvalid", "field": "spec", "detail": "", "message": "spec: "}
    yield "errors: one too many", with_value(case, ("errors",), [*case["errors"], invented])
    if len(case["errors"]) > 1:
        yield "errors: order", with_value(case, ("errors",), case["errors"][::-1])


def _shown(type_: str, field: str, detail: str, message: str, recorded: Any) -> tuple[str, ...]:
    """Return the compared parts.

    Objects in messages have upstream's Go field names; not compared.
    """
    if recorded is not None and recorded.get("badValueOmitted"):
        return type_, field, detail
    return type_, field, detail, message


def _padded(expected: Sequence[Any], length: int) -> list[Any]:
    return [*expected[:length], *[None] * (length - len(expected))]
