"""Evaluation of the reports of Kubernetes' end-to-end suite."""

import json
import re
from pathlib import Path

from tests.upstream.e2e import Outcome, outcomes, report_lines, surprises
from tests.upstream.spec_sets import SETS

PASSED = Outcome("[sig-node] Pods should run", True, "")
FAILED = Outcome("[sig-node] Pods should wait", False, "timed out")
KNOWN = {FAILED.name: "needs images"}


def test_outcomes_leave_out_specs_that_did_not_run(tmp_path: Path) -> None:
    def spec(text: str, state: str, kind: str = "It") -> dict[str, object]:
        failure = {"Message": "timed\n  out"} if state == "failed" else None
        return {
            "LeafNodeType": kind, "ContainerHierarchyTexts": ["[sig-node]", "Pods"],
            "LeafNodeText": text, "State": state, "Failure": failure,
        }  # fmt: skip

    specs = [
        spec("should wait", "failed"),
        spec("should run", "passed"),
        spec("should not", "skipped"),
        spec("", "passed", "SynchronizedBeforeSuite"),
    ]
    report = tmp_path / "report.json"
    report.write_text(json.dumps([{"SpecReports": specs}]))
    assert outcomes(report) == [PASSED, FAILED]


def test_report_names_counts_and_failures() -> None:
    assert report_lines([PASSED, FAILED], {}) == [
        "sig-node: 1 of 2",
        "all: 1 of 2",
        "FAILED [sig-node] Pods should wait: timed out",
    ]
    assert report_lines([FAILED], KNOWN)[-1] == "FAILED [sig-node] Pods should wait: needs images"


def test_surprises_are_unknown_failures_and_known_ones_that_pass() -> None:
    assert surprises([PASSED, FAILED], {}) == [FAILED]
    assert surprises([PASSED, FAILED], KNOWN) == []
    assert surprises([PASSED], {PASSED.name: "needs images"}) == [PASSED]


def test_sets_choose_specs_by_name() -> None:
    def chosen(set_name: str, name: str) -> bool:
        return any(
            re.search(part.focus, name) and not re.search(part.skip, name)
            for part in SETS[set_name].values()
        )

    job = "[sig-apps] Job should run [Conformance]"
    definition = "[sig-api-machinery] CustomResourceDefinition Watch should see [Conformance]"
    assert chosen("jobs", job)
    assert not chosen("wide", job)
    assert chosen("crd", definition)
    assert chosen("wide", definition)
    assert chosen("wide", "[sig-apps] DisruptionController should evict [Conformance]")
    assert not chosen("wide", definition.replace("Watch", "Watch [Serial]"))
    assert not chosen("wide", "[sig-storage] CSIInlineVolumes should run [Conformance]")
