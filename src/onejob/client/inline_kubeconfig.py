"""Untrusted kubeconfigs: an https server and inline credentials only.

A user who may create a Secret must not make the server run programs (exec plugins), read its files
(paths) or connect to unauthenticated peers (insecure TLS, proxies). Fields that could do so are
rejected by name, not ignored.
"""

import base64
import binascii
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from onejob.api.decoding.json_reading import MAX_DEPTH
from onejob.api.decoding.yaml_reading import read_yaml
from onejob.client.credentials import Credential, FixedCredential
from onejob.client.kubeconfig import Connection, InvalidKubeconfig
from onejob.wire.errors import ApiError

_MAX_BYTES: Final = 1024 * 1024
#: Field -> reason for its rejection, completing "the cluster's FIELD ...".
_REFUSED_OF_CLUSTERS: Final = {
    "certificate-authority": "refers to a file; use certificate-authority-data",
    "insecure-skip-tls-verify": "disables verification; use certificate-authority-data",
    "proxy-url": "would send all requests through a proxy",
}
_REFUSED_OF_USERS: Final = {
    "exec": "runs a program; use a token or a client certificate",
    "auth-provider": "runs a program; use a token or a client certificate",
    "tokenFile": "refers to a file; use token",
    "client-certificate": "refers to a file; use client-certificate-data",
    "client-key": "refers to a file; use client-key-data",
    "username": "is no longer supported by Kubernetes; use a token",
    "password": "is no longer supported by Kubernetes; use a token",
    "as": "impersonates another user; use the credentials of that user",
    "as-uid": "impersonates another user; use the credentials of that user",
    "as-groups": "impersonates another user; use the credentials of that user",
    "as-user-extra": "impersonates another user; use the credentials of that user",
}


def read_inline_kubeconfig(text: bytes, place: str) -> Connection:
    """Return the connection of the current context.

    Raises InvalidKubeconfig; `place` names the text in messages.
    """
    config = _parse(text, place)
    context, cluster, user = _select_context(config, place, "")
    for section, fields, what in (
        (cluster, _REFUSED_OF_CLUSTERS, "cluster"),
        (user, _REFUSED_OF_USERS, "user"),
    ):
        for field, why in fields.items():
            if section.get(field):
                raise InvalidKubeconfig(f"{place}: the {what}'s {field} {why}")
    token, certificate, key = (
        str(user.get("token") or ""),
        _decode_data(user, "client-certificate-data", place),
        _decode_data(user, "client-key-data", place),
    )
    if not token and not (certificate and key):
        raise InvalidKubeconfig(
            f"{place}: the user requires a token, or client-certificate-data and client-key-data"
        )
    if any(character in token for character in "\r\n\0"):
        raise InvalidKubeconfig(f"{place}: the user's token has more than one line")
    return Connection(
        server=_https_server(cluster, place),
        credentials=FixedCredential(
            Credential(f"Bearer {token}" if token else "", certificate, key)
        ),
        authority=_decode_data(cluster, "certificate-authority-data", place),
        tls_server_name=str(cluster.get("tls-server-name") or ""),
        compress=not cluster.get("disable-compression"),
        namespace=str(context.get("namespace") or "default"),
    )


def inlined_kubeconfig(path: Path, context: str = "") -> bytes:
    """Return one context of a local kubeconfig, with referenced files inlined.

    Raises InvalidKubeconfig if the result would still be rejected by `read_inline_kubeconfig`.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise InvalidKubeconfig(f"{path}: {error.strerror}") from error
    chosen, cluster, user = _select_context(_parse(text, str(path)), str(path), context)
    cluster, user = dict(cluster), dict(user)
    _put_in(cluster, "certificate-authority", path)
    _put_in(user, "client-certificate", path)
    _put_in(user, "client-key", path)
    kept = {"cluster": "target", "user": "target"}
    if chosen.get("namespace"):
        kept["namespace"] = str(chosen["namespace"])
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "target", "cluster": cluster}],
        "users": [{"name": "target", "user": user}],
        "contexts": [{"name": "target", "context": kept}],
        "current-context": "target",
    }
    inlined = msgspec.json.encode(config)
    read_inline_kubeconfig(inlined, str(path))
    return inlined


def _parse(text: bytes, place: str) -> Mapping[str, Any]:
    """Parse the text. Raises InvalidKubeconfig."""
    if len(text) > _MAX_BYTES:
        raise InvalidKubeconfig(f"{place}: too large for a kubeconfig")
    try:
        config, _ = read_yaml(text, MAX_DEPTH)
    except (ApiError, ValueError) as error:
        raise InvalidKubeconfig(f"{place}: not a kubeconfig: {_first_line(error)}") from error
    if not isinstance(config, dict) or not isinstance(config.get("clusters"), list):
        raise InvalidKubeconfig(f"{place}: not a kubeconfig: it contains no clusters")
    return config


def _select_context(
    config: Mapping[str, Any], place: str, context: str
) -> tuple[Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]]:
    """Return the context, cluster and user that the kubeconfig selects."""
    name = context or str(config.get("current-context") or "")
    if not name:
        raise InvalidKubeconfig(f"{place}: current-context is not set")
    chosen = _entry(config, place, "contexts", "context", name)
    return (
        chosen,
        _entry(config, place, "clusters", "cluster", str(chosen.get("cluster") or "")),
        _entry(config, place, "users", "user", str(chosen.get("user") or "")),
    )


def _entry(
    config: Mapping[str, Any], place: str, section: str, field: str, name: str
) -> Mapping[str, Any]:
    """Return a named entry of a section. Raises InvalidKubeconfig."""
    entries = config.get(section)
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and entry.get("name") == name:
            found = entry.get(field)
            if isinstance(found, dict):
                return found
    raise InvalidKubeconfig(f"{place}: no {field} named {name!r}")


def _https_server(cluster: Mapping[str, Any], place: str) -> str:
    """Return the server's URL. Raises InvalidKubeconfig unless it is a plain https URL."""
    server = str(cluster.get("server") or "").rstrip("/")
    try:
        url = urlsplit(server)
        good = url.scheme == "https" and bool(url.hostname) and url.username is None
        _ = url.port
    except ValueError:
        good = False
    if not good:
        raise InvalidKubeconfig(
            f"{place}: the cluster's server must be an https URL, not {server!r}"
        )
    return server


def _decode_data(section: Mapping[str, Any], field: str, place: str) -> bytes:
    """Return decoded data; b"" if it is absent. Raises InvalidKubeconfig."""
    try:
        return base64.b64decode(str(section.get(field) or ""), validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidKubeconfig(f"{place}: {field} is not valid base64") from error


def _put_in(section: dict[str, Any], field: str, kubeconfig: Path) -> None:
    """Replace a file in a section by its data, in place. Raises InvalidKubeconfig."""
    name = section.pop(field, None)
    if not name or section.get(f"{field}-data"):
        return
    try:
        data = (kubeconfig.parent / str(name)).read_bytes()
    except OSError as error:
        raise InvalidKubeconfig(f"{kubeconfig}: {field}: {error}") from error
    section[f"{field}-data"] = base64.b64encode(data).decode()


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:300]
