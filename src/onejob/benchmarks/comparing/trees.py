"""Source trees of two revisions, prepared to run with the same interpreter."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import onejob

_PACKAGE = Path(onejob.__file__).parent
#: Files that the build generates into the package; not tracked by git.
_GENERATED = Path("api/data")


class NoSuchTree(Exception):
    """There is no tree to compare with. The message is one line with the reason."""


@dataclass(frozen=True, slots=True)
class Tree:
    name: str
    #: Folder that contains the package.
    source: Path
    #: Folder of its bytecode cache.
    cache: Path

    def environment(self) -> Mapping[str, str]:
        return {
            **os.environ,
            "PYTHONPATH": str(self.source),
            "PYTHONPYCACHEPREFIX": str(self.cache),
        }


@contextmanager
def both_trees(revision: str) -> Iterator[tuple[Tree, Tree]]:
    """Yield the other revision, in a temporary git worktree, and this one. Raises NoSuchTree."""
    with tempfile.TemporaryDirectory(prefix="onejob-bench-") as scratch:
        folder = Path(scratch)
        checkout = folder / "other"
        name = _git("rev-parse", "--short", "--verify", f"{revision}^{{commit}}")
        _git("worktree", "add", "--detach", str(checkout), name)
        try:
            other = Tree(name, checkout / "src", folder / "bytecode-other")
            _generate(checkout)
            this = Tree("this", _PACKAGE.parent, folder / "bytecode-this")
            for tree in (other, this):
                _compile(tree)
            yield other, this
        finally:
            _git("worktree", "remove", "--force", str(checkout))


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(_PACKAGE), *arguments], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        raise NoSuchTree("git is not installed") from None
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["git failed"]
        raise NoSuchTree(said[-1].removeprefix("fatal: "))
    return done.stdout.strip()


def _generate(checkout: Path) -> None:
    """Generate files by that revision's own build if possible; else copy this revision's."""
    built = subprocess.run(
        [sys.executable, "build_schema.py"], cwd=checkout, capture_output=True, check=False
    )
    target = checkout / "src" / "onejob" / _GENERATED
    if built.returncode or not any(target.glob("*")):
        shutil.copytree(_PACKAGE / _GENERATED, target, dirs_exist_ok=True)


def _compile(tree: Tree) -> None:
    """Precompile the bytecode, so that neither tree is measured while it compiles.

    Raises NoSuchTree if the interpreter imports another package than the tree's.
    """
    environment = tree.environment()
    package = tree.source / "onejob"
    subprocess.run(
        [sys.executable, "-m", "compileall", "-q", str(package)],
        env=environment,
        stdout=subprocess.DEVNULL,
        check=False,
    )
    found = subprocess.run(
        [sys.executable, "-c", "import onejob; print(onejob.__file__)"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    if not Path(found).is_relative_to(package):
        raise NoSuchTree(f"{tree.name}: {sys.executable} does not run the code in {package}")
