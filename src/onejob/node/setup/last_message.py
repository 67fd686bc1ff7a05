"""Termination messages: the file for a container's message, and reading it back safely.

The container can replace the file by anything: a link, a FIFO, a huge file. Therefore only a
regular file reached without links is read, and only its beginning.
"""

import os
from pathlib import Path

from onejob.node.logs.reading import log_tail
from onejob.node.runtime import AttemptRef
from onejob.node.supervisor.paths import beneath, folder_of, open_regular, read_file_beneath

#: The kubelet's limits.
_MESSAGE_BYTES = 4096
_FALLBACK_LINES, _FALLBACK_BYTES = 80, 2048


def make_message_file(pods: Path, ref: AttemptRef) -> Path:
    """Create an empty file that the container may write to as any user. Raises OSError."""
    folder, name = _message_path(ref)
    with folder_of(str(pods)) as top, beneath(top, folder, make=0o755) as parent:
        fd = open_regular(name, os.O_WRONLY | os.O_CREAT, dir_fd=parent)
        try:
            os.fchmod(fd, 0o666)
        finally:
            os.close(fd)
    return pods / folder / name


def last_message(pods: Path, ref: AttemptRef, code: int, *, policy: str, log: Path) -> str:
    """Return the message of an attempt that exited with `code`: its file, or the end of its log if
    the policy permits; "" if there is none."""
    try:
        found = read_file_beneath(str(pods), "/".join(_message_path(ref)), _MESSAGE_BYTES)
    except OSError:
        # The container deleted the file, or replaced it by another kind.
        found = b""
    if not found and code and policy == "FallbackToLogsOnError":
        try:
            return log_tail(log, _FALLBACK_LINES, _FALLBACK_BYTES)
        except OSError:
            # The log was rotated or replaced at this moment.
            return ""
    return found.decode("utf-8", "replace")


def _message_path(ref: AttemptRef) -> tuple[str, str]:
    """Return folder and name of the termination message, relative to all Pods' folders."""
    return f"{ref.uid}/messages", f"{ref.container}-{ref.attempt}"
