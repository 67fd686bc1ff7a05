"""Runner of the CEL rules of real projects, compared with Google's own evaluator.

Each rule must compile to a bool and have the same result on values made from the fields and
constants that it names. The file records rules and no results, so the expected values come from
that evaluator. A case may hold another rule for the oracle (`oracleRule`), which only the
corruption uses.
"""

from collections.abc import Iterator

from onejob.cel import CompileError, compile_rule, rule_variables
from onejob.cel.types import DYN
from tests.cel import oracle
from tests.cel.asking import result_of
from tests.cel.shapes import values_of
from tests.conformance.loader import with_value
from tests.conformance.verdict import Case, Failed, Passed, Verdict

_VALUES = 20


def run_case(case: Case) -> Verdict:
    rule = case["rule"]
    asked: str = case.get("oracleRule") or rule
    try:
        program = compile_rule(rule, rule_variables(DYN))
    except CompileError as error:
        return Failed(f"rule: {error}")
    for values in values_of(rule, _VALUES):
        expected, found = oracle.ask(asked, values), result_of(program, values)
        if expected != found:
            return Failed(f"result with {values}: expected {expected!r}, got {found!r}")
    return Passed()


def corruptions(case: Case) -> Iterator[tuple[str, Case]]:
    yield "rule (syntax)", with_value(case, ("rule",), f"{case['rule']} &&")
    yield "rule (type)", with_value(case, ("rule",), f"[{case['rule']}]")
    yield "result", with_value(case, ("oracleRule",), f"!({case['rule']})")
