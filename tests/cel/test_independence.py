"""Independence of the CEL package: it imports nothing else of onejob, and can be used alone."""

import ast
from pathlib import Path

import onejob.cel
from tests.python_sources import syntax_tree


def _imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(syntax_tree(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names.add(node.module or "")
    return names


def test_nothing_of_the_rest_is_imported() -> None:
    folder = Path(onejob.cel.__file__).parent
    files = list(folder.rglob("*.py"))
    assert len(files) > 20
    foreign = {
        name
        for path in files
        for name in _imported(path)
        if name.partition(".")[0] == "onejob" and not name.startswith("onejob.cel")
    }
    assert not foreign
