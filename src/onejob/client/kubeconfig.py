"""Which server to talk to, how to trust it and who to be: from a kubeconfig or from a Pod."""

import base64
import binascii
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from onejob.client.credentials import (
    Credential,
    CredentialSource,
    ExecPlugin,
    FixedCredential,
    PluginCommand,
    TokenFile,
)
from onejob.clock import Clock

_SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class BadKubeconfig(Exception):
    """The file is missing, or does not say what it must; the message names the place."""


@dataclass(frozen=True, slots=True)
class Connection:
    """Everything an `HttpClient` needs to know."""

    #: https://host:port, perhaps with a path; no slash at the end.
    server: str
    credentials: CredentialSource
    #: PEM of whom to trust; empty means the system's authorities.
    authority: bytes = b""
    #: Set only where a kubeconfig says `insecure-skip-tls-verify`.
    insecure: bool = False
    #: The name that the certificate must have, where it is not the server's host.
    tls_server_name: str = ""
    proxy: str = ""
    compress: bool = True
    #: The namespace that commands use where none is given.
    namespace: str = "default"


def load_kubeconfig(path: Path, clock: Clock, *, context: str = "") -> Connection:
    """The connection of one context (`current-context` if none is named)."""
    config = _read(path)
    name = context or str(config.get("current-context") or "")
    if not name:
        raise BadKubeconfig(f"{path}: no context is named and there is no current-context")
    chosen = _entry(config, path, "contexts", "context", name)
    cluster = _entry(config, path, "clusters", "cluster", str(chosen.get("cluster") or ""))
    user_name = str(chosen.get("user") or "")
    user = _entry(config, path, "users", "user", user_name) if user_name else {}
    server = str(cluster.get("server") or "").rstrip("/")
    if not server.startswith(("https://", "http://")):
        raise BadKubeconfig(f"{path}: the cluster of context {name!r} has no server URL")
    return Connection(
        server=server,
        credentials=_credentials(user, cluster, path, clock),
        authority=_data(cluster, "certificate-authority", path),
        insecure=bool(cluster.get("insecure-skip-tls-verify")),
        tls_server_name=str(cluster.get("tls-server-name") or ""),
        proxy=str(cluster.get("proxy-url") or ""),
        compress=not cluster.get("disable-compression"),
        namespace=str(chosen.get("namespace") or "default"),
    )


def in_cluster(
    clock: Clock,
    environment: Mapping[str, str] = os.environ,
    directory: Path = _SERVICE_ACCOUNT,
) -> Connection:
    """The connection that a Pod in a cluster has. Raises BadKubeconfig outside of one."""
    host = environment.get("KUBERNETES_SERVICE_HOST", "")
    port = environment.get("KUBERNETES_SERVICE_PORT", "443")
    if not host or not all((directory / file).exists() for file in ("token", "ca.crt")):
        raise BadKubeconfig("not in a cluster: no service account is mounted here")
    namespace = directory / "namespace"
    return Connection(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        credentials=TokenFile(directory / "token", clock),
        authority=(directory / "ca.crt").read_bytes(),
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
    )


def _credentials(
    user: dict[str, Any], cluster: dict[str, Any], path: Path, clock: Clock
) -> CredentialSource:
    if user.get("exec"):
        return ExecPlugin(_plugin(user["exec"], cluster, path), clock)
    if user.get("tokenFile"):
        return TokenFile(_relative(str(user["tokenFile"]), path), clock)
    authorization = ""
    if user.get("token"):
        authorization = f"Bearer {user['token']}"
    elif user.get("username"):
        pair = f"{user['username']}:{user.get('password') or ''}"
        authorization = f"Basic {base64.b64encode(pair.encode()).decode()}"
    return FixedCredential(
        Credential(
            authorization,
            _data(user, "client-certificate", path),
            _data(user, "client-key", path),
        )
    )


def _plugin(section: dict[str, Any], cluster: dict[str, Any], path: Path) -> PluginCommand:
    command = str(section.get("command") or "")
    api_version = str(section.get("apiVersion") or "")
    if not command or not api_version.startswith("client.authentication.k8s.io/"):
        raise BadKubeconfig(f"{path}: an exec user needs a command and an apiVersion")
    if "/" in command:
        command = str(_relative(command, path))
    info = None
    if section.get("provideClusterInfo"):
        info = {
            name: cluster[name]
            for name in ("server", "certificate-authority-data", "tls-server-name", "proxy-url")
            if cluster.get(name)
        }
    return PluginCommand(
        command=command,
        api_version=api_version,
        arguments=tuple(map(str, section.get("args") or ())),
        environment={str(e["name"]): str(e["value"]) for e in section.get("env") or ()},
        cluster=info,
        install_hint=str(section.get("installHint") or "").strip(),
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_bytes()
    except OSError as error:
        raise BadKubeconfig(f"{path}: {error.strerror}") from error
    config: Any
    try:
        # onejob writes its own as JSON, which spares the time to import a YAML reader.
        config = msgspec.json.decode(text) if text.lstrip()[:1] == b"{" else _yaml(text)
    except ValueError as error:
        raise BadKubeconfig(f"{path}: not a kubeconfig: {error}") from error
    if not isinstance(config, dict):
        raise BadKubeconfig(f"{path}: not a kubeconfig")
    return config


def _yaml(text: bytes) -> Any:
    import yaml

    try:
        return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def _entry(
    config: dict[str, Any], path: Path, section: str, field: str, name: str
) -> dict[str, Any]:
    for entry in config.get(section) or ():
        if isinstance(entry, dict) and entry.get("name") == name:
            found = entry.get(field) or {}
            if isinstance(found, dict):
                return found
    raise BadKubeconfig(f"{path}: there is no {field} named {name!r}")


def _data(section: dict[str, Any], name: str, path: Path) -> bytes:
    """A PEM that is given inline (`NAME-data`) or as a file (`NAME`)."""
    inline = section.get(f"{name}-data")
    if inline:
        try:
            return base64.b64decode(str(inline), validate=True)
        except binascii.Error as error:
            raise BadKubeconfig(f"{path}: {name}-data is not base64") from error
    file = section.get(name)
    if not file:
        return b""
    try:
        return _relative(str(file), path).read_bytes()
    except OSError as error:
        raise BadKubeconfig(f"{path}: {name}: {error}") from error


def _relative(name: str, kubeconfig: Path) -> Path:
    """Files are named relative to the kubeconfig that names them."""
    return kubeconfig.parent / name
