"""Checks of the documentation against the code: commands, options, gates, links, examples."""

import re
import runpy
import subprocess
from pathlib import Path

import pytest

from onejob.gates import DEFAULTS

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_command_reference_is_up_to_date() -> None:
    script = ROOT / "docs" / "reference" / "write_commands.py"
    written = runpy.run_path(str(script))["render"]()
    stored = (ROOT / "docs" / "reference" / "commands.md").read_text()
    assert stored == written, f"run python {script.relative_to(ROOT)}"


@pytest.mark.parametrize(
    ("script", "page"),
    [("import_graph.py", "imports.md"), ("pod_lifecycle.py", "pod-lifecycle.md")],
)
def test_diagram_matches_the_code(script: str, page: str) -> None:
    folder = ROOT / "docs" / "diagrams"
    assert (folder / page).read_text() == runpy.run_path(str(folder / script))["render"](), (
        "run make diagrams"
    )


def test_the_landing_page_links_every_guide() -> None:
    text = (ROOT / "docs" / "index.md").read_text()
    guides = sorted((ROOT / "docs" / "how-to").glob("*.md"))
    assert [page.name for page in guides if f"(how-to/{page.name})" not in text] == []


def test_the_reference_names_every_gate_with_its_default() -> None:
    text = (ROOT / "docs" / "reference" / "feature-gates.md").read_text()
    documented = dict(re.findall(r"^\| `(\w+)` \| (on|off) \|", text, re.MULTILINE))
    assert documented == {gate: "on" if value else "off" for gate, value in DEFAULTS.items()}


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_page_names_the_two_setup_commands(page: str) -> None:
    first_block = (ROOT / page).read_text().split("```")[1]
    assert "make run" in first_block
    assert "make test" in first_block


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_installs_from_where_nothing_is_published(page: Path) -> None:
    assert "pip install onejob" not in page.read_text()


def test_running_the_example_installs_no_tool_of_development(tmp_path: Path) -> None:
    def commands(target: str) -> str:
        made = ["make", "--dry-run", target, f"VENV={tmp_path / 'venv'}"]
        return subprocess.run(made, cwd=ROOT, check=True, capture_output=True, text=True).stdout

    assert "--editable ." in commands("run")
    assert "dev.txt" not in commands("run")
    assert "dev.txt" in commands("test")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
