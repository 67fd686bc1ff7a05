"""Manifests from outside the file system: downloaded from a URL, or built by kustomize."""

import shutil
import subprocess
from typing import Final

from onejob.cli.errors import CommandError

_SECONDS: Final = 30.0
_MAX_BYTES: Final = 10 << 20


def download(url: str) -> bytes:
    """Return the content of a URL. Raises CommandError, also above 10 MiB."""
    from http.client import HTTPException
    from urllib.error import HTTPError, URLError
    from urllib.request import urlopen

    try:
        # Callers pass http and https URLs only.
        with urlopen(url, timeout=_SECONDS) as answer:
            data: bytes = answer.read(_MAX_BYTES + 1)
    except HTTPError as error:
        raise CommandError(f"{url}: {error.code} {error.reason}") from None
    except URLError as error:
        reason = error.reason
        why = reason.strerror if isinstance(reason, OSError) and reason.strerror else reason
        raise CommandError(f"{url}: {why}") from None
    except (HTTPException, OSError, ValueError) as error:
        raise CommandError(f"{url}: {type(error).__name__}: {error}") from None
    if len(data) > _MAX_BYTES:
        raise CommandError(f"{url}: more than {_MAX_BYTES >> 20} MiB")
    return data


def kustomize(folder: str) -> str:
    """Return the YAML that `kustomize build` or `kubectl kustomize` prints. Raises CommandError."""
    if shutil.which("kustomize"):
        command = ["kustomize", "build", folder]
    elif shutil.which("kubectl"):
        command = ["kubectl", "kustomize", folder]
    else:
        raise CommandError(f"-k {folder}: neither kustomize nor kubectl is installed")
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS * 4, check=False
        )
    except subprocess.TimeoutExpired:
        raise CommandError(f"-k {folder}: {command[0]} timed out") from None
    if done.returncode:
        words = " ".join(done.stderr.split())
        raise CommandError(f"-k {folder}: {words.removeprefix('error: ').removeprefix('Error: ')}")
    return done.stdout
