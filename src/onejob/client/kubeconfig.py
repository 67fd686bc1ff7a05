"""Connection settings from a kubeconfig or a Pod's service account.

They are the server's address, its trust anchors, credentials and proxy.
"""

import base64
import binascii
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from onejob.client.credentials import (
    Credential,
    CredentialFiles,
    CredentialSource,
    ExecPlugin,
    FixedCredential,
    PluginCommand,
)
from onejob.client.proxies import proxy_for
from onejob.clock import Clock

_SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class InvalidKubeconfig(Exception):
    """The kubeconfig is missing or invalid; the message names file and field."""


@dataclass(frozen=True, slots=True)
class Connection:
    """Connection settings of an `HttpClient`."""

    #: https://host:port, optionally with a path; no trailing slash.
    server: str
    credentials: CredentialSource
    #: PEM of the trusted authorities; empty means the system's authorities.
    authority: bytes = b""
    #: Set only if a kubeconfig has `insecure-skip-tls-verify`.
    insecure: bool = False
    #: The name that the certificate must have, if it differs from the server's host.
    tls_server_name: str = ""
    proxy: str = ""
    compress: bool = True
    #: Default namespace of commands.
    namespace: str = "default"


def find_connection(
    clock: Clock,
    *,
    kubeconfig: str = "",
    context: str = "",
    environment: Mapping[str, str] = os.environ,
    service_account: Path = _SERVICE_ACCOUNT,
) -> Connection:
    """Return the connection of `kubeconfig`, or the default one.

    The default is, in this order, $KUBECONFIG, the service account of the Pod that this process
    runs in, and ~/.kube/config. Raises InvalidKubeconfig if there is none.
    """
    named = kubeconfig or environment.get("KUBECONFIG", "")
    if named:
        # The variable may list several files; the first existing one is used.
        parts = [kubeconfig] if kubeconfig else named.split(":")
        paths = [Path(part) for part in parts if part]
        found = [path for path in paths if path.exists()]
        return load_kubeconfig((found or paths)[0], clock, context=context, environment=environment)
    if environment.get("KUBERNETES_SERVICE_HOST") and not context:
        return in_cluster(clock, environment, service_account)
    usual = Path(environment.get("HOME") or "/") / ".kube" / "config"
    if not usual.exists():
        raise InvalidKubeconfig(
            f"no kubeconfig specified, {usual} does not exist, and this process does not run in "
            "a cluster"
        )
    return load_kubeconfig(usual, clock, context=context, environment=environment)


def load_kubeconfig(
    path: Path,
    clock: Clock,
    *,
    context: str = "",
    environment: Mapping[str, str] = os.environ,
) -> Connection:
    """Return the connection of one context, by default `current-context`.

    `environment` provides the proxy if the file names none. Raises InvalidKubeconfig.
    """
    config = _read(path)
    name = context or str(config.get("current-context") or "")
    if not name:
        raise InvalidKubeconfig(f"{path}: no context specified, and current-context is not set")
    return _connection(config, path, name, clock, environment)


def merge_kubeconfigs(paths: Sequence[Path]) -> dict[str, Any]:
    """Return the entries of all files, as kubectl merges them: the first of a name counts.

    File names in them become absolute. Files that do not exist are skipped, unless none exists.
    Raises InvalidKubeconfig.
    """
    present = [path for path in paths if path.exists()] or paths[:1]
    merged: dict[str, Any] = {}
    for path in present:
        config = _read(path)
        for section, field in _SECTIONS.items():
            entries = config.get(section) or ()
            if not isinstance(entries, list | tuple):
                raise InvalidKubeconfig(f"{path}: {section} must be a list")
            for entry in entries:
                if not isinstance(entry, dict) or not isinstance(entry.get(field), dict):
                    continue
                value = _with_absolute_names(entry[field], path)
                merged.setdefault(section, []).append({**entry, field: value})
    return merged


def connection_in(
    config: dict[str, Any],
    place: Path,
    context: str,
    clock: Clock,
    environment: Mapping[str, str] = os.environ,
) -> Connection:
    """Return the connection of a context of `merge_kubeconfigs`. Raises InvalidKubeconfig.

    `place` names the configuration in messages.
    """
    return _connection(config, place, context, clock, environment)


_SECTIONS: Final = {"clusters": "cluster", "users": "user", "contexts": "context"}
_FILE_NAMES: Final = ("certificate-authority", "client-certificate", "client-key", "tokenFile")


def _with_absolute_names(section: dict[str, Any], path: Path) -> dict[str, Any]:
    base = path.absolute()
    changed: dict[str, Any] = {
        name: str(_relative(str(section[name]), base)) for name in _FILE_NAMES if section.get(name)
    }
    plugin = section.get("exec")
    if isinstance(plugin, dict) and "/" in str(plugin.get("command") or ""):
        changed["exec"] = {**plugin, "command": str(_relative(str(plugin["command"]), base))}
    return {**section, **changed}


def _connection(
    config: dict[str, Any],
    path: Path,
    name: str,
    clock: Clock,
    environment: Mapping[str, str],
) -> Connection:
    chosen = _entry(config, path, "contexts", "context", name)
    cluster = _entry(config, path, "clusters", "cluster", str(chosen.get("cluster") or ""))
    user_name = str(chosen.get("user") or "")
    user = _entry(config, path, "users", "user", user_name) if user_name else {}
    server = str(cluster.get("server") or "").rstrip("/")
    if not server.startswith(("https://", "http://")):
        raise InvalidKubeconfig(f"{path}: the cluster of context {name!r} has no server URL")
    authority = _data(cluster, "certificate-authority", path)
    insecure = bool(cluster.get("insecure-skip-tls-verify"))
    if insecure and authority:
        raise InvalidKubeconfig(
            f"{path}: the cluster of context {name!r} has both a certificate-authority and "
            "insecure-skip-tls-verify: remove one"
        )
    return Connection(
        server=server,
        credentials=_credentials(user, user_name, cluster, path, clock),
        authority=authority,
        insecure=insecure,
        tls_server_name=str(cluster.get("tls-server-name") or ""),
        proxy=_proxy(cluster, server, environment, path),
        compress=not cluster.get("disable-compression"),
        namespace=str(chosen.get("namespace") or "default"),
    )


def in_cluster(
    clock: Clock,
    environment: Mapping[str, str] = os.environ,
    directory: Path = _SERVICE_ACCOUNT,
) -> Connection:
    """Return the connection of a Pod in a cluster. Raises InvalidKubeconfig outside of one."""
    host = environment.get("KUBERNETES_SERVICE_HOST", "")
    port = environment.get("KUBERNETES_SERVICE_PORT", "443")
    if not host or not all((directory / file).exists() for file in ("token", "ca.crt")):
        raise InvalidKubeconfig("not running in a cluster: no service account is mounted")
    namespace = directory / "namespace"
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    return Connection(
        server=server,
        credentials=CredentialFiles(clock, token=directory / "token"),
        authority=(directory / "ca.crt").read_bytes(),
        proxy=_proxy({}, server, environment, directory),
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
    )


def _proxy(cluster: dict[str, Any], server: str, environment: Mapping[str, str], path: Path) -> str:
    """Return the URL of the proxy to use; "" for none. Raises InvalidKubeconfig."""
    proxy = str(cluster.get("proxy-url") or "") or proxy_for(server, environment)
    if proxy and not proxy.startswith(("http://", "https://")):
        raise InvalidKubeconfig(f"{path}: unsupported proxy {proxy}: use http:// or https://")
    return proxy


def _credentials(
    user: dict[str, Any], name: str, cluster: dict[str, Any], path: Path, clock: Clock
) -> CredentialSource:
    """Return the source of a user's credentials. Raises InvalidKubeconfig."""
    for unsupported in ("auth-provider", "as", "as-uid", "as-groups", "as-user-extra"):
        if user.get(unsupported):
            raise InvalidKubeconfig(
                f"{path}: user {name!r} has {unsupported}, which is not supported"
            )
    has_certificate = _is_given(user, "client-certificate")
    has_key = _is_given(user, "client-key")
    if has_certificate != has_key:
        missing = "client-key" if has_certificate else "client-certificate"
        raise InvalidKubeconfig(f"{path}: user {name!r} requires {missing} or {missing}-data")
    if user.get("exec"):
        return ExecPlugin(_plugin(user["exec"], cluster, path), clock)
    certificate, key = _source(user, "client-certificate", path), _source(user, "client-key", path)
    if user.get("tokenFile") or isinstance(certificate, Path) or isinstance(key, Path):
        token = _relative(str(user["tokenFile"]), path) if user.get("tokenFile") else None
        return CredentialFiles(
            clock, token=token or str(user.get("token") or ""), certificate=certificate, key=key
        )
    authorization = ""
    if user.get("token"):
        authorization = f"Bearer {user['token']}"
    elif user.get("username"):
        pair = f"{user['username']}:{user.get('password') or ''}"
        authorization = f"Basic {base64.b64encode(pair.encode()).decode()}"
    return FixedCredential(Credential(authorization, certificate, key))


def _is_given(user: dict[str, Any], name: str) -> bool:
    return bool(user.get(name) or user.get(f"{name}-data"))


def _source(user: dict[str, Any], name: str, path: Path) -> bytes | Path:
    """Return inline data as bytes, or the path of a file to be read when needed.

    Also checks that the file can be read, because an error raised here can name the field.
    """
    data = _data(user, name, path)
    if user.get(f"{name}-data") or not user.get(name):
        return data
    return _relative(str(user[name]), path)


def _plugin(section: Any, cluster: dict[str, Any], path: Path) -> PluginCommand:
    """Return the command of an exec user. Raises InvalidKubeconfig."""
    if not isinstance(section, dict):
        raise InvalidKubeconfig(f"{path}: an exec user requires a command and an apiVersion")
    command = str(section.get("command") or "")
    api_version = str(section.get("apiVersion") or "")
    if not command or not api_version.startswith("client.authentication.k8s.io/"):
        raise InvalidKubeconfig(f"{path}: an exec user requires a command and an apiVersion")
    if "/" in command:
        command = str(_relative(command, path))
    info = None
    if section.get("provideClusterInfo"):
        info = {
            name: cluster[name]
            for name in ("server", "certificate-authority-data", "tls-server-name", "proxy-url")
            if cluster.get(name)
        }
    variables = section.get("env") or ()
    if not all(isinstance(e, dict) and {"name", "value"} <= e.keys() for e in variables):
        raise InvalidKubeconfig(f"{path}: each env of an exec user requires a name and a value")
    return PluginCommand(
        command=command,
        api_version=api_version,
        arguments=tuple(map(str, section.get("args") or ())),
        environment={str(e["name"]): str(e["value"]) for e in variables},
        cluster=info,
        install_hint=str(section.get("installHint") or "").strip(),
    )


def _read(path: Path) -> dict[str, Any]:
    """Return the decoded kubeconfig. Raises InvalidKubeconfig."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise InvalidKubeconfig(f"{path}: {error.strerror}") from error
    config: Any
    try:
        # onejob writes its own kubeconfigs as JSON, which avoids the import of a YAML parser.
        config = msgspec.json.decode(text) if text.lstrip()[:1] == b"{" else _yaml(text)
    except ValueError as error:
        raise InvalidKubeconfig(f"{path}: not a kubeconfig: {error}") from error
    if not isinstance(config, dict):
        raise InvalidKubeconfig(f"{path}: not a kubeconfig")
    return config


def _yaml(text: bytes) -> Any:
    """Return the decoded text. Raises ValueError."""
    import yaml

    try:
        return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def _entry(
    config: dict[str, Any], path: Path, section: str, field: str, name: str
) -> dict[str, Any]:
    """Return a named entry of a section; an empty one if it is null. Raises InvalidKubeconfig."""
    for entry in config.get(section) or ():
        if isinstance(entry, dict) and entry.get("name") == name:
            found = entry.get(field) or {}
            if isinstance(found, dict):
                return found
    raise InvalidKubeconfig(f"{path}: no {field} named {name!r}")


def _data(section: dict[str, Any], name: str, path: Path) -> bytes:
    """Return PEM data given inline (`NAME-data`) or as a file (`NAME`); b"" if neither is given."""
    inline = section.get(f"{name}-data")
    if inline:
        try:
            return base64.b64decode(str(inline), validate=True)
        except binascii.Error as error:
            raise InvalidKubeconfig(f"{path}: {name}-data is not valid base64") from error
    file = section.get(name)
    if not file:
        return b""
    try:
        return _relative(str(file), path).read_bytes()
    except OSError as error:
        raise InvalidKubeconfig(f"{path}: {name}: {file}: {error.strerror}") from error


def _relative(name: str, kubeconfig: Path) -> Path:
    """Resolve a path relative to the kubeconfig that contains it."""
    return kubeconfig.parent / name
