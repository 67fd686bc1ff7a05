"""Checks of the managers' versions without building them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.managers import suites
from tests.managers.building import MANAGERS
from tests.managers.suites import Result, compared, read_output, read_report


def test_each_release_has_a_folder_of_its_own() -> None:
    assert all(manager.folder.name.endswith(manager.version) for manager in MANAGERS)
    assert len({manager.folder for manager in MANAGERS}) == len(MANAGERS)


def test_building_without_go_fails_with_message(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.managers"],
        env={**os.environ, "PATH": "", "XDG_CACHE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == (
        "managers: skipped: Go is not installed, and it is needed to build the managers\n"
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert list(tmp_path.iterdir()) == []


def test_read_report_counts_specs_and_names_failures(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(
        "<testsuites><testsuite>"
        '<testcase name="[BeforeSuite]" status="passed"/>'
        '<testcase name="[It] a" status="passed"/>'
        '<testcase name="[It] b" status="failed"/>'
        '<testcase name="[It] c" status="timedout"/>'
        '<testcase name="[It] d" status="skipped"/>'
        '<testcase name="[It] e" status="pending"/>'
        "</testsuite></testsuites>"
    )
    assert read_report(report) == Result(1, ("[It] b", "[It] c"), 2)


def test_read_output_counts_parts_of_tests() -> None:
    text = (
        "=== RUN   TestA\n--- PASS: TestA (0.00s)\n"
        "--- FAIL: TestB (1.00s)\n"
        "    --- PASS: TestB/one (0.50s)\n    --- FAIL: TestB/two (0.50s)\n"
        "--- SKIP: TestC (0.00s)\n"
    )
    assert read_output(text) == Result(2, ("TestB/two",), 1)


def test_only_unknown_failures_of_onejob_alone_are_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suites, "KNOWN_FAILURES", {"s": {"a": "why", "gone": "why"}})
    ours, real = Result(1, ("a", "b", "c"), 0), Result(1, ("c", "d"), 0)
    assert list(compared("s", {"onejob": ours, "kube-apiserver": real})) == [
        ("failed: a (kube-apiserver: passes): why", False),
        ("failed: b (kube-apiserver: passes): unknown", True),
        ("failed: c (kube-apiserver: fails): unknown", False),
        ("failed with kube-apiserver only: d", False),
        ("known as failing, but passed: gone", True),
    ]


def test_unknown_suites_are_refused_with_the_known_ones() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.managers.suites", "nothing"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "unknown suites: nothing; known: jobset-webhook" in done.stdout
