"""Parser of kube-apiserver and etcd flags, and their translation to `onejob serve` options."""

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Final, NamedTuple

#: Flags passed by envtest that get no note: their effect is the default here, or meaningless.
_NO_NOTE: Final = frozenset(
    {
        *("advertise-address", "allow-privileged", "etcd-servers"),
        *("insecure-bind-address", "service-account-issuer", "service-account-key-file"),
        *("service-account-signing-key-file", "service-cluster-ip-range"),
    }
)


class UnsupportedFlag(ValueError):
    """Unsupported flag. The message is one line that names the flag and a remedy."""


class ServeOptions(NamedTuple):
    listen: str
    #: Folder in which kube-apiserver would generate certificates; "" without --cert-dir.
    cert_dir: str
    #: Options of `onejob serve`, without the address.
    options: tuple[str, ...]
    #: Messages on flags that have no effect.
    notes: tuple[str, ...]


def read_flags(words: Iterable[str]) -> list[tuple[str, str]]:
    """Parse `--name=value`, `--name value` and `--name` (true), in order.

    Raises UnsupportedFlag.
    """
    flags: list[tuple[str, str]] = []
    expects_value = False
    for word in words:
        if word.startswith("-") and word != "-":
            name, equals, value = word.lstrip("-").partition("=")
            flags.append((name, value if equals else "true"))
            expects_value = not equals
        elif expects_value:
            flags[-1] = (flags[-1][0], word)
            expects_value = False
        elif word:
            raise UnsupportedFlag(f"{word!r} is not a flag; flags are --name=value")
    return flags


def serve_options(
    flags: Sequence[tuple[str, str]], known_gates: Set[str], files: Set[str] = frozenset()
) -> ServeOptions:
    """Translate kube-apiserver's flags to `onejob serve` options. Raises UnsupportedFlag.

    `files` is the content of --cert-dir.
    """
    given = dict(flags)
    notes = [
        f"unknown flag --{name} has no effect"
        for name in given
        if name not in _NO_NOTE and name not in _HANDLED
    ]
    if given.get("insecure-port", "0") not in ("0", ""):
        raise UnsupportedFlag(
            "--insecure-port: only TLS is supported (do not set APIServer.URL and InsecureServing)"
        )
    modes = given.get("authorization-mode", "RBAC")
    if "RBAC" not in modes.split(","):
        notes.append(f"--authorization-mode={modes} has no effect: RBAC is always enabled")
    host = given.get("bind-address") or "127.0.0.1"
    port = given.get("secure-port") or "6443"
    if not port.isdigit():
        raise UnsupportedFlag(f"--secure-port={port}: expected a number")
    gates, unknown = _gates(flags, known_gates)
    notes += [f"--feature-gates: unknown gate {gate} has no effect" for gate in unknown]
    return ServeOptions(
        f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
        given.get("cert-dir", ""),
        (
            *_tls_options(given, files),
            *([f"--feature-gates={','.join(gates)}"] if gates else []),
            f"--enable-admission-plugins={','.join(_plugins(given))}",
        ),
        tuple(notes),
    )


_TLS: Final = ("tls-cert-file", "tls-private-key-file", "client-ca-file")
_HANDLED: Final = frozenset(
    {
        *_TLS,
        *("authorization-mode", "bind-address", "cert-dir", "feature-gates"),
        *("disable-admission-plugins", "enable-admission-plugins"),
        *("insecure-port", "secure-port"),
    }
)


def _plugins(given: Mapping[str, str]) -> list[str]:
    """Return the plugins for Pods that are not switched off: they are on in kube-apiserver."""
    off = given.get("disable-admission-plugins", "").split(",")
    return [name for name in ("DefaultTolerationSeconds", "Priority") if name not in off]


def _tls_options(given: Mapping[str, str], files: Set[str]) -> list[str]:
    chosen = {name: given[name] for name in _TLS if given.get(name)}
    if "tls-cert-file" not in chosen and {"apiserver.crt", "apiserver.key"} <= files:
        # As in kube-apiserver: a pair with these names is used; envtest provides one.
        chosen["tls-cert-file"] = f"{given['cert-dir']}/apiserver.crt"
        chosen["tls-private-key-file"] = f"{given['cert-dir']}/apiserver.key"
    return [f"--{name}={path}" for name, path in chosen.items()]


def _gates(flags: Sequence[tuple[str, str]], known: Set[str]) -> tuple[list[str], list[str]]:
    """Return the feature gates that onejob has, and the unknown ones. The flag may be repeated."""
    items = [
        item.strip()
        for name, value in flags
        if name == "feature-gates"
        for item in value.split(",")
        if item.strip()
    ]
    exist = [item for item in items if item.partition("=")[0].strip() in known]
    return exist, [item for item in items if item not in exist]
