"""The sources of two revisions, ready to be run by the same interpreter."""

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
#: What the build writes into the package and git does not know.
_GENERATED = Path("api/data")


class NoSuchTree(Exception):
    """One line: why there is nothing to compare with."""


@dataclass(frozen=True, slots=True)
class Tree:
    name: str
    #: The folder that has the package.
    source: Path
    #: Where its bytecode is.
    cache: Path

    def environment(self) -> Mapping[str, str]:
        return {
            **os.environ,
            "PYTHONPATH": str(self.source),
            "PYTHONPYCACHEPREFIX": str(self.cache),
        }


@contextmanager
def both_trees(revision: str) -> Iterator[tuple[Tree, Tree]]:
    """The other revision, in a worktree of its own, and this one. Raises NoSuchTree."""
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
    """By that revision's own build where this is possible; otherwise what this one has."""
    built = subprocess.run(
        [sys.executable, "build_schema.py"], cwd=checkout, capture_output=True, check=False
    )
    target = checkout / "src" / "onejob" / _GENERATED
    if built.returncode or not any(target.glob("*")):
        shutil.copytree(_PACKAGE / _GENERATED, target, dirs_exist_ok=True)


def _compile(tree: Tree) -> None:
    """So that neither is measured while it compiles; and make sure that it is what is run."""
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
        raise NoSuchTree(f"{tree.name}: {sys.executable} does not run what is in {package}")
