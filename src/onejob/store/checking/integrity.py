"""Full integrity check of the database, triggered by the first damaged document."""

import logging
import threading
from pathlib import Path

from onejob.store.base import CannotOpen, CorruptStore
from onejob.store.checking.copies import problems_of
from onejob.store.checking.examination import examine
from onejob.store.damage import IsReadable
from onejob.worker_threads import start_daemon

log = logging.getLogger(__name__)


class PageCheck:
    """Integrity check on a dedicated thread that logs the problems SQLite finds in the pages.

    It takes long, writes nothing, and must delay neither commits nor the event loop.
    """

    def __init__(self, path: Path) -> None:
        """Start the check. Raises OSError if no thread can be started."""
        self._path = path
        self._stopped = threading.Event()
        self._thread = start_daemon(self._run, "onejob-store-check")

    def stop(self) -> None:
        """Abort the check and wait until it has closed the database.

        The store must be the last to close the database: the last connection removes its log, and
        the files may then be moved or deleted.
        """
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        """Check the pages in a thread and log the problems, unless stopped."""
        try:
            problems = problems_of(self._path, self._stopped.is_set)
        except CannotOpen as error:
            problems = [str(error)]
        if self._stopped.is_set():
            return
        for problem in problems:
            log.error("%s is damaged: %s; run onejob doctor for details", self._path, problem)


def describe_corruption(path: Path, is_readable: IsReadable, error: CorruptStore) -> str:
    """Return a one-line error for a rejected database.

    It names the affected objects if they can be determined.
    """
    try:
        found = examine(path, is_readable)
    except CannotOpen:
        return str(error)
    lost = len(found.lost) + found.unnamed
    if not lost:
        return str(error)
    first = min(map(str, found.lost), default="")
    upto = "up to " if found.unnamed else ""
    which = f"{upto}{lost} objects" if not first else f"{first} and {upto}{lost - 1} more objects"
    return (
        f"{path} is damaged: cannot read {(first if lost == 1 and first else which)}; onejob "
        "doctor lists damaged objects, --export saves intact ones and --repair drops damaged "
        "ones; or restore a backup"
    )
