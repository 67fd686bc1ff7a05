"""Files that only their owner may read: keys, tokens, kubeconfigs."""

import os
from pathlib import Path


def write_private(path: Path, content: bytes) -> None:
    """Write all of it or nothing, mode 0600, on disk when this returns. A link of that name is
    replaced, never followed."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    # A leftover of a process that had our number, or somebody's trap: never written to.
    temporary.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
