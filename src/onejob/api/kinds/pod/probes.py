"""Validation of probes and lifecycle handlers."""

from collections.abc import Mapping
from typing import Any, Final

from onejob.wire.field_errors import FieldError, forbidden, invalid, not_supported, required
from onejob.wire.names import header_name_errors, port_name_errors

_NUMBERS: Final = (
    "initialDelaySeconds",
    "timeoutSeconds",
    "periodSeconds",
    "successThreshold",
    "failureThreshold",
)
_PROBE_HANDLERS: Final = ("exec", "httpGet", "tcpSocket", "grpc")
_LIFECYCLE_HANDLERS: Final = ("exec", "httpGet", "tcpSocket", "sleep")


def validate_probes(container: Mapping[str, Any], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        probe = container.get(name)
        if probe is None:
            continue
        place = f"{path}.{name}"
        errors += _validate_handler(probe, _PROBE_HANDLERS, place)
        errors += [
            invalid(f"{place}.{field}", probe[field], "must be greater than or equal to 0")
            for field in _NUMBERS
            if probe.get(field, 0) < 0
        ]
        if name == "readinessProbe":
            if "terminationGracePeriodSeconds" in probe:
                errors.append(
                    invalid(
                        f"{place}.terminationGracePeriodSeconds",
                        probe["terminationGracePeriodSeconds"],
                        "must not be set for readinessProbes",
                    )
                )
            continue
        if probe.get("terminationGracePeriodSeconds", 1) <= 0:
            errors.append(
                invalid(
                    f"{place}.terminationGracePeriodSeconds",
                    probe["terminationGracePeriodSeconds"],
                    "must be greater than 0",
                )
            )
        if probe.get("successThreshold", 1) != 1:
            errors.append(
                invalid(f"{place}.successThreshold", probe["successThreshold"], "must be 1")
            )
    return errors


def validate_lifecycle(container: Mapping[str, Any], path: str) -> list[FieldError]:
    lifecycle = container.get("lifecycle", {})
    errors: list[FieldError] = []
    for name in ("postStart", "preStop"):
        if name in lifecycle:
            errors += _validate_handler(
                lifecycle[name], _LIFECYCLE_HANDLERS, f"{path}.lifecycle.{name}"
            )
    return errors


def _validate_handler(
    handler: Mapping[str, Any], known: tuple[str, ...], path: str
) -> list[FieldError]:
    errors: list[FieldError] = []
    first = True
    for name in known:
        if name not in handler:
            continue
        if not first:
            errors.append(forbidden(f"{path}.{name}", "may not specify more than 1 handler type"))
            continue
        first = False
        errors += _validate_action(name, handler[name], f"{path}.{name}")
    if first:
        errors.append(required(path, "must specify a handler type"))
    return errors


def _validate_action(name: str, action: Mapping[str, Any], path: str) -> list[FieldError]:
    match name:
        case "exec":
            return [] if action.get("command") else [required(f"{path}.command")]
        case "httpGet":
            return _validate_http_get(action, path)
        case "sleep":
            seconds = action.get("seconds", 0)
            if seconds >= 0:
                return []
            return [invalid(path, seconds, "must be greater than or equal to 0")]
        case _:
            return _validate_port(action.get("port", 0), f"{path}.port")


def _validate_http_get(action: Mapping[str, Any], path: str) -> list[FieldError]:
    errors = []
    if not action.get("path"):
        errors.append(required(f"{path}.path"))
    errors += _validate_port(action.get("port", 0), f"{path}.port")
    scheme = action.get("scheme", "")
    if scheme not in ("HTTP", "HTTPS"):
        errors.append(not_supported(f"{path}.scheme", scheme, ["HTTP", "HTTPS"]))
    for header in action.get("httpHeaders", ()):
        name = header.get("name", "")
        errors += [invalid(f"{path}.httpHeaders", name, text) for text in header_name_errors(name)]
    return errors


def _validate_port(port: int | str, path: str) -> list[FieldError]:
    if isinstance(port, str):
        return [invalid(path, port, text) for text in port_name_errors(port)]
    if 1 <= port <= 65535:
        return []
    return [invalid(path, port, "must be between 1 and 65535, inclusive")]
