"""Benchmark of the conformance rules: CPU time here and in the oracle.

Run by hand: `python -m tests.cel.measure_rules`. Nothing asserts these figures.
"""

import time
from typing import Any

from onejob.cel import CostLimitExceeded, EvaluationError, Program
from tests.cel import oracle
from tests.cel.asking import compile_any
from tests.cel.shapes import values_of
from tests.conformance.loader import folder, load

_VALUES = 40
_ROUNDS = 5


def main() -> None:
    if folder() is None:
        print("no conformance folder: see tests/conformance/loader.py")
        return
    print(f"{'compile':>9} {'evaluate':>9} {'oracle':>9}  rule (microseconds)")
    rows = [_measure(rule) for rule in dict.fromkeys(case["rule"] for case in load("cel_rules"))]
    for compiled, evaluated, asked, rule in sorted(rows, key=lambda row: row[1]):
        print(f"{compiled:9.1f} {evaluated:9.2f} {asked:9.1f}  {rule[:100]}")
    count = len(rows)
    compiled = sum(row[0] for row in rows) / count
    evaluated = sum(row[1] for row in rows) / count
    asked = sum(row[2] for row in rows) / count
    print(f"{compiled:9.1f} {evaluated:9.2f} {asked:9.1f}  mean of {count} rules")


def _measure(rule: str) -> tuple[float, float, float, str]:
    started = time.process_time()
    for _ in range(_ROUNDS):
        program = compile_any(rule)
    compiled = (time.process_time() - started) / _ROUNDS
    values = list(values_of(rule, _VALUES))
    started = time.process_time()
    for _ in range(_ROUNDS):
        for each in values:
            _evaluate(program, each)
    evaluated = (time.process_time() - started) / _ROUNDS / _VALUES
    oracle.ask(rule, values[0])
    started = time.process_time()
    for each in values:
        oracle.ask(rule, each)
    asked = (time.process_time() - started) / _VALUES
    return compiled * 1e6, evaluated * 1e6, asked * 1e6, rule


def _evaluate(program: Program, values: dict[str, Any]) -> None:
    try:
        program.evaluate(values)
    except (EvaluationError, CostLimitExceeded):
        return


if __name__ == "__main__":
    main()
