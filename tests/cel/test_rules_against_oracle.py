"""Rules of real projects, on generated values, compared with the oracle."""

from collections import Counter
from typing import Any

import pytest

from tests.cel import oracle
from tests.cel.asking import compile_any, result_of
from tests.cel.shapes import values_of
from tests.conformance.loader import folder, load

VALUES_PER_RULE = 60


def _rules() -> list[str]:
    return [case["rule"] for case in load("cel_rules")] if folder() else []


@pytest.mark.skipif(
    folder() is None,
    reason="no conformance folder beside the checkout and ONEJOB_CONFORMANCE is not set",
)
def test_every_rule_agrees_with_the_oracle_on_generated_values() -> None:
    differences = []
    seen: Counter[str] = Counter()
    for rule in _rules():
        program = compile_any(rule)
        for values in values_of(rule, VALUES_PER_RULE):
            expected, found = oracle.ask(rule, values), result_of(program, values)
            seen[repr(expected)] += 1
            if not _same(expected, found):
                differences.append(f"{rule} with {values}: {expected!r}, not {found!r}")
    assert not differences, f"{len(differences)} differ:\n" + "\n".join(differences[:5])
    # The values must be able to distinguish a right evaluator from a wrong one.
    assert seen["True"] > 500
    assert seen["False"] > 500
    assert seen["Failure()"] > 100


def _same(expected: Any, found: Any) -> bool:
    return type(expected) is type(found) and bool(expected == found)
