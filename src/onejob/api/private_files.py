"""Files that only their owner may read: keys, tokens, kubeconfigs."""

import os
from pathlib import Path


def write_private(path: Path, content: bytes) -> None:
    """Write all of it or nothing, mode 0600, on disk when this returns."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
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
