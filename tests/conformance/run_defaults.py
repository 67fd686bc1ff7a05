"""Runner of defaults.json: default values."""

import copy
from collections.abc import Iterator

from onejob.api.kinds import strategy_for
from onejob.gates import FeatureGates
from onejob.wire.registry import KindRegistry
from tests.conformance.loader import with_value
from tests.conformance.verdict import Case, Verdict, compare


def run_case(case: Case) -> Verdict:
    doc = copy.deepcopy(case["in"])
    strategy_for(KindRegistry().by_kind["batch/v1", case["kind"]], FeatureGates()).default(doc)
    return compare("defaulted document", case["out"], doc)


def corruptions(case: Case) -> Iterator[tuple[str, Case]]:
    for field in case["out"]["spec"]:
        yield f"out.spec.{field}", with_value(case, ("out", "spec", field), "corrupted")
    yield "out.metadata", with_value(case, ("out", "metadata", "labels"), {"corrupted": "yes"})
