"""Structure of the code base: documented packages, small folders, separate test helpers.

Documentation names only modules that exist.
"""

import ast
import re
from pathlib import Path

import pytest

from tests.python_sources import syntax_tree

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "onejob"
PACKAGES = sorted(file.parent for file in SOURCE.rglob("__init__.py"))

MAX_MODULES = 20
#: Folders with more modules than that, and why they are not split.
LARGE_FOLDERS = {
    "benchmarks": "one module per scenario or peer; catalogue.py is the index",
    "cli/commands": "one module per command",
    "controllers": "one module per controller; those of Jobs begin with job",
    "node/supervisor": "one program that imports nothing else of onejob; main.py is the entry",
    "planning/job": "one module per question of a Job sync; planner.py is the entry point",
}


def _name(folder: Path) -> str:
    return folder.relative_to(SOURCE).as_posix()


def _modules(folder: Path) -> int:
    return len([file for file in folder.glob("*.py") if file.name != "__init__.py"])


@pytest.mark.parametrize("package", PACKAGES, ids=_name)
def test_packages_have_docstrings(package: Path) -> None:
    described = ast.get_docstring(syntax_tree(package / "__init__.py"))
    assert described, f"{_name(package)}/__init__.py has no docstring"
    assert len(described.split()) >= 5


def test_a_folder_has_at_most_twenty_modules_unless_there_is_a_reason() -> None:
    large = {_name(folder) for folder in PACKAGES if _modules(folder) > MAX_MODULES}
    assert large == LARGE_FOLDERS.keys()


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_modules_that_are_named_exist(page: str) -> None:
    text = (ROOT / page).read_text()
    named = set(re.findall(r"`([\w./-]+\.py)`", text)) | set(re.findall(r"`([\w/]+/)`", text))
    missing = [
        path
        for path in named
        if "/" in path.rstrip("/")
        and not any((base / path).exists() for base in (ROOT, SOURCE, ROOT / "tests"))
    ]
    assert not missing


def test_no_test_imports_from_another_test() -> None:
    imports = {
        (file.relative_to(ROOT).as_posix(), module)
        for file in (ROOT / "tests").rglob("*.py")
        for module in re.findall(r"^\s*from (\S+) import", file.read_text(), re.MULTILINE)
    }
    # Shared helpers belong in a module of their own, such as `support.py`.
    assert [pair for pair in imports if pair[1].rpartition(".")[2].startswith("test_")] == []
