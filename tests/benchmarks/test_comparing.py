"""`onejob bench --against`: compared source trees, and the report."""

import subprocess
from pathlib import Path

import pytest

from onejob.benchmarks.comparing import trees
from onejob.benchmarks.comparing.rounds import Ratio, Round, compare
from onejob.benchmarks.comparing.trees import NoSuchTree, both_trees
from onejob.cli.display.bench_report import render_comparison
from onejob.cli.display.terminal import Terminal
from onejob.cli.main import run_command

WIDE = Terminal(interactive=False, colour=False, width=120)

ROUNDS = [
    # A busy minute, a quiet one and one in between: this one always takes half the other's.
    Round({"seconds": 8.0, "gone": 1.0}, {"seconds": 4.0}, {"limit": {"seconds": 2.0}}),
    Round({"seconds": 2.0, "gone": 1.0}, {"seconds": 1.0}, {"limit": {"seconds": 0.5}}),
    Round({"seconds": 4.0, "gone": 1.0}, {"seconds": 2.4, "new": 1.0}, {"limit": {"seconds": 1.0}}),
]


def test_comparison_uses_ratios_within_a_round() -> None:
    (seconds,) = compare(ROUNDS)
    assert (seconds.figure, seconds.other, seconds.this) == ("seconds", 4.0, 2.4)
    assert seconds.ratio == Ratio(0.5, 0.5, 0.6)
    assert seconds.by_limit == {"limit": (4.0, 2.0)}


def test_a_comparison_shows_both_and_how_far_they_are_from_the_limit() -> None:
    assert render_comparison("giant  How long?", "abc1234", compare(ROUNDS), WIDE) == [
        "giant  How long?",
        "  FIGURE    ABC1234   THIS   RATIO   LOWEST   HIGHEST   BY LIMIT",
        "  seconds   4         2.4    0.50    0.50     0.60      4.00 → 2.00",
    ]


@pytest.mark.parametrize(("other", "this", "ratio"), [(0.0, 0.0, 1.0), (0.0, 1.0, float("inf"))])
def test_figures_that_are_nothing_can_be_compared(other: float, this: float, ratio: float) -> None:
    (compared,) = compare([Round({"commits": other}, {"commits": this})])
    assert compared.ratio.middle == ratio


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    command = ["git", "-C", str(folder), *who, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a package with two revisions; its build output is not in git."""
    package = tmp_path / "src" / "onejob"
    data = package / "api" / "data"
    data.mkdir(parents=True)
    (tmp_path / ".gitignore").write_text("data\n")
    (data / "schema").write_text("generated")
    git(tmp_path, "init", "-q")
    for version in ("old", "new"):
        (package / "__init__.py").write_text(f"VERSION = {version!r}\n")
        git(tmp_path, "add", ".")
        git(tmp_path, "commit", "-qm", version)
    monkeypatch.setattr(trees, "_PACKAGE", package)
    return tmp_path


def test_other_revision_is_checked_out_separately_and_removed(checkout: Path) -> None:
    with both_trees("HEAD~1") as (other, this):
        assert other.name == git(checkout, "rev-parse", "--short", "HEAD~1")
        versions = [(tree.source / "onejob" / "__init__.py").read_text() for tree in (other, this)]
        assert versions == ["VERSION = 'old'\n", "VERSION = 'new'\n"]
        assert (other.source / "onejob" / "api" / "data" / "schema").read_text() == "generated"
        assert any(other.cache.rglob("*.pyc"))
        assert any(this.cache.rglob("*.pyc"))
        assert len(git(checkout, "worktree", "list").splitlines()) == 2
    assert len(git(checkout, "worktree", "list").splitlines()) == 1
    assert not other.source.exists()
    assert git(checkout, "status", "--porcelain") == ""


def test_a_revision_that_is_none_is_refused(checkout: Path) -> None:
    with pytest.raises(NoSuchTree, match="Needed a single revision"), both_trees("nonsense"):
        raise AssertionError("there is nothing to compare with")
    assert len(git(checkout, "worktree", "list").splitlines()) == 1


def test_a_package_outside_a_checkout_has_no_revisions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trees, "_PACKAGE", tmp_path)
    with pytest.raises(NoSuchTree, match="not a git repository"), both_trees("HEAD"):
        raise AssertionError("there is nothing to compare with")


def test_bench_against_unknown_revision_fails_with_one_line(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["bench", "operations", "--against", "nonsense"]) == 2
    assert "cannot compare with 'nonsense'" in capsys.readouterr().err
