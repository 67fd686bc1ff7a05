"""HTTP proxy selection by `http_proxy`, `https_proxy` and `no_proxy`. Pure functions."""

from collections.abc import Mapping
from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit


def proxy_for(server: str, environment: Mapping[str, str]) -> str:
    """Return the URL of the proxy for a server, or "" for none.

    As in Go: loopback addresses never use a proxy, and variable names may be in lower or upper
    case.
    """
    parts = urlsplit(server)
    host = (parts.hostname or "").rstrip(".")
    proxy = _variable(environment, f"{parts.scheme}_proxy")
    if not proxy or _is_loopback(host):
        return ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    for entry in _variable(environment, "no_proxy").split(","):
        if _matches(entry.strip().lower(), host, port):
            return ""
    return proxy if "://" in proxy else f"http://{proxy}"


def _variable(environment: Mapping[str, str], name: str) -> str:
    """Return an environment variable by its upper-case or lower-case name; "" if neither is set."""
    return environment.get(name.upper(), "") or environment.get(name, "")


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _matches(entry: str, host: str, port: int) -> bool:
    """Return whether an entry of `no_proxy` includes the host and port."""
    if not entry or entry == "*":
        return bool(entry)
    name, colon, wanted_port = entry.rpartition(":")
    if colon and wanted_port.isdigit() and not (":" in name and not name.startswith("[")):
        if int(wanted_port) != port:
            return False
        entry = name.strip("[]")
    try:
        address = ip_address(host)
    except ValueError:
        return _matches_name(entry, host)
    try:
        return address in ip_network(entry, strict=False)
    except ValueError:
        return False


def _matches_name(entry: str, host: str) -> bool:
    """Return whether a `no_proxy` entry matches.

    `example.com` matches itself and its subdomains, `.example.com` only the subdomains.
    """
    if entry.startswith("*."):
        entry = entry[1:]
    if entry.startswith("."):
        return host.endswith(entry)
    return host == entry or host.endswith(f".{entry}")
