"""Files with secrets that options name: Pods that see the host's files do not see these."""

from collections.abc import Iterable, Iterator
from glob import escape
from pathlib import Path


def patterns_of(names: Iterable[str | None]) -> Iterator[str]:
    """Return patterns of `fnmatch` for files, by the names given and by those that they lead to."""
    for name in names:
        if name:
            yield from (escape(str(path)) for path in _paths(name))


def patterns_of_rotated(name: str | None) -> Iterator[str]:
    """Return the same for a log file and its earlier versions."""
    if name and name != "-":
        for path in _paths(name):
            yield escape(str(path))
            yield f"{escape(str(path.with_suffix('')))}-*{escape(path.suffix)}"


def _paths(name: str) -> set[Path]:
    path = Path(name)
    return {path.parent.resolve() / path.name, path.resolve()}
