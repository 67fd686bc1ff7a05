"""Kubeconfig generation: the settings with which kubectl reaches this server, in a private file."""

import base64
import os
import stat
from pathlib import Path

import msgspec

from onejob.api.access.private_files import write_private


def write_kubeconfig(
    path: Path,
    *,
    server: str,
    authority: bytes,
    token: str,
    user: str = "onejob-admin",
    namespace: str = "default",
) -> None:
    """Write a kubeconfig atomically.

    `server` is the URL, `authority` the CA certificate in PEM. A file that is already correct is
    not rewritten, because a server must be able to start on a full disk.
    """
    cluster = {
        "server": server,
        "certificate-authority-data": base64.b64encode(authority).decode(),
        # Client and server share the machine: compression costs more than it saves.
        "disable-compression": True,
    }
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "onejob", "cluster": cluster}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [
            {
                "name": "onejob",
                "context": {"cluster": "onejob", "user": user, "namespace": namespace},
            }
        ],
        "current-context": "onejob",
    }
    # JSON is a subset of YAML and needs no YAML library.
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    content = msgspec.json.format(msgspec.json.encode(config), indent=2) + b"\n"
    if not _is_right(path, content):
        write_private(path, content)


def _is_right(path: Path, content: bytes) -> bool:
    try:
        found = path.lstat()
        private = stat.S_ISREG(found.st_mode) and stat.S_IMODE(found.st_mode) == 0o600
        return private and found.st_uid == os.geteuid() and path.read_bytes() == content
    except OSError:
        return False
