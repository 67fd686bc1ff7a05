"""Looks at the whole database once something in it was found damaged."""

import logging
import threading
from pathlib import Path

from onejob.store.base import CannotOpen, CorruptStore
from onejob.store.checking.copies import problems_of
from onejob.store.checking.examination import examine
from onejob.store.damage import IsReadable

log = logging.getLogger(__name__)


def check_beside(path: Path) -> threading.Thread:
    """Log what SQLite finds wrong with the pages, on a thread of its own: it takes long, writes
    nothing, and must hold up neither commits nor the loop."""
    thread = threading.Thread(
        target=_log_problems, args=(path,), name="onejob-store-check", daemon=True
    )
    thread.start()
    return thread


def _log_problems(path: Path) -> None:
    try:
        problems = problems_of(path)
    except CannotOpen as error:
        problems = [str(error)]
    for problem in problems:
        log.error("%s is damaged: %s; onejob doctor says more", path, problem)


def said_in_full(path: Path, is_readable: IsReadable, error: CorruptStore) -> str:
    """One line about a database that a server refuses: which objects are concerned, if that can be
    found out."""
    try:
        found = examine(path, is_readable)
    except CannotOpen:
        return str(error)
    if not found.lost:
        return str(error)
    first, *others = sorted(found.lost)
    more = f" and {len(others)} more objects" if others else ""
    return (
        f"{path} is damaged: {first}{more} cannot be read; onejob doctor lists them, --export "
        f"saves what is whole and --repair goes on without them; or restore a backup"
    )
