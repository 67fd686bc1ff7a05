"""Files with secrets named by options, hidden from Pods that see the host's files."""

from collections.abc import Iterable, Iterator
from glob import escape
from pathlib import Path


def patterns_of(names: Iterable[str | None]) -> Iterator[str]:
    """Yield `fnmatch` patterns for the files, by the given names and by their link targets."""
    for name in names:
        if name:
            yield from (escape(str(path)) for path in _paths(name))


def patterns_of_rotated(name: str | None) -> Iterator[str]:
    """Yield patterns for a log file and its rotated versions."""
    if name and name != "-":
        for path in _paths(name):
            yield escape(str(path))
            yield f"{escape(str(path.with_suffix('')))}-*{escape(path.suffix)}"


def _paths(name: str) -> set[Path]:
    path = Path(name)
    return {path.parent.resolve() / path.name, path.resolve()}
