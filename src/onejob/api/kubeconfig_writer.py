"""The admin's kubeconfig: everything kubectl needs to reach this server, in one private file."""

import base64
from pathlib import Path

import msgspec

from onejob.api.private_files import write_private


def write_kubeconfig(path: Path, *, server: str, authority: bytes, token: str) -> None:
    """`server` is the URL, `authority` the CA certificate in PEM. Replaces the file at once."""
    cluster = {
        "server": server,
        "certificate-authority-data": base64.b64encode(authority).decode(),
        # Client and server are on the same machine: compressing costs more than it saves.
        "disable-compression": True,
    }
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "onejob", "cluster": cluster}],
        "users": [{"name": "onejob-admin", "user": {"token": token}}],
        "contexts": [
            {
                "name": "onejob",
                "context": {"cluster": "onejob", "user": "onejob-admin", "namespace": "default"},
            }
        ],
        "current-context": "onejob",
    }
    # JSON is YAML, and needs no YAML library to write.
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_private(path, msgspec.json.format(msgspec.json.encode(config), indent=2) + b"\n")
