"""Validation of the addresses of admission and conversion webhooks, as upstream. Pure."""

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from onejob.wire.field_errors import FieldError, invalid, required
from onejob.wire.names import dns_1035_errors, subdomain_errors

_LARGEST_PORT: Final = 65535


def client_errors(client: dict[str, Any], path: str) -> list[FieldError]:
    """Return the errors of the address of a webhook."""
    if (client.get("url") is None) == (not client.get("service")):
        return [required(path, "exactly one of url or service is required")]
    if (url := client.get("url")) is not None:
        return [invalid(f"{path}.url", part, text) for part, text in _url_errors(url)]
    service = client.get("service") or {}
    errors: list[FieldError] = []
    if service:
        errors += [
            required(f"{path}.service.{field}")
            for field in ("name", "namespace")
            if not service.get(field)
        ]
        place = service.get("path", "")
        errors += [invalid(f"{path}.service.path", place, text) for text in _path_errors(place)]
        port = service.get("port", 443)
        if not 1 <= port <= _LARGEST_PORT:
            text = "port is not valid: must be between 1 and 65535, inclusive"
            errors.append(invalid(f"{path}.service.port", port, text))
    return errors


def _path_errors(path: str) -> list[str]:
    """Return what is wrong with the path of a webhook behind a Service, as upstream."""
    if path in ("", "/"):
        return []
    if path == "//":
        return ["segment[0] may not be empty"]
    errors = [] if path.startswith("/") else ["must start with a '/'"]
    for index, segment in enumerate(path[1:].removesuffix("/").split("/")):
        if not segment:
            errors.append(f"segment[{index}] may not be empty")
        else:
            errors += [f"segment[{index}]: {text}" for text in subdomain_errors(segment)]
    return errors


def _url_errors(url: str) -> list[tuple[str, str]]:
    """Return what is wrong with a webhook's URL, and each part that is."""
    form = "; desired format: https://host[/path]"
    try:
        parts = urlsplit(url)
        host = parts.hostname
        _ = parts.port
    except ValueError as error:
        return [(url, f"url must be a valid URL: {error}{form}")]
    errors = []
    if parts.scheme != "https":
        errors.append((parts.scheme, f"'https' is the only allowed URL scheme{form}"))
    if not host:
        errors.append((parts.netloc, f"host must be specified{form}"))
    if "@" in parts.netloc:
        user = parts.netloc.rpartition("@")[0]
        errors.append((user, "user information is not permitted in the URL"))
    if parts.fragment:
        errors.append((parts.fragment, "fragments are not permitted in the URL"))
    if parts.query:
        errors.append((parts.query, "query parameters are not permitted in the URL"))
    return errors


def review_version_errors(
    versions: Sequence[str], path: str, missing: str = ""
) -> list[FieldError]:
    """Return the errors of the versions of reviews that a webhook understands."""
    if not versions:
        return [required(path, missing)]
    errors: list[FieldError] = []
    for index, version in enumerate(versions):
        place = f"{path}[{index}]"
        if version in versions[:index]:
            errors.append(invalid(place, version, "duplicate version"))
        else:
            errors += [invalid(place, version, text) for text in dns_1035_errors(version)]
    if not {"v1", "v1beta1"} & set(versions):
        text = "must include at least one of v1, v1beta1"
        errors.append(invalid(path, list(versions), text))
    return errors
