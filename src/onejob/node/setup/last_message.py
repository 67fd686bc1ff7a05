"""Termination messages: the file that a container may leave one in, and what is made of it.

The container can put anything in the file's place: a link, a FIFO, something huge. So it is only
read if it is a regular file that no link leads to, and only its beginning.
"""

import os
from pathlib import Path

from onejob.node.logs.reading import last_words
from onejob.node.runtime import AttemptRef
from onejob.node.supervisor.paths import beneath, folder_of, open_regular, read_file_beneath

#: The kubelet's limits.
_MESSAGE_BYTES = 4096
_FALLBACK_LINES, _FALLBACK_BYTES = 80, 2048


def make_message_file(pods: Path, ref: AttemptRef) -> Path:
    """An empty file that the container may write to, whoever it runs as. Raises OSError."""
    folder, name = _place(ref)
    with folder_of(str(pods)) as top, beneath(top, folder, make=0o755) as parent:
        fd = open_regular(name, os.O_WRONLY | os.O_CREAT, dir_fd=parent)
        try:
            os.fchmod(fd, 0o666)
        finally:
            os.close(fd)
    return pods / folder / name


def last_message(pods: Path, ref: AttemptRef, code: int, *, policy: str, log: Path) -> str:
    """What an attempt that ended with `code` left as its message: a file, or the end of its log
    if the policy says so."""
    try:
        found = read_file_beneath(str(pods), "/".join(_place(ref)), _MESSAGE_BYTES)
    except OSError:
        # It made none, or put something else in its place.
        found = b""
    if not found and code and policy == "FallbackToLogsOnError":
        try:
            return last_words(log, _FALLBACK_LINES, _FALLBACK_BYTES)
        except OSError:
            # It was rotated or replaced this very moment.
            return ""
    return found.decode("utf-8", "replace")


def _place(ref: AttemptRef) -> tuple[str, str]:
    return f"{ref.uid}/messages", f"{ref.container}-{ref.attempt}"
