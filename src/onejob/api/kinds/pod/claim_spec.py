"""Validation of the spec of a claim, which ephemeral volumes of Pods contain as well."""

from collections.abc import Sequence
from typing import Any, Final

from onejob.wire.field_errors import FieldError, forbidden, invalid, not_supported, required
from onejob.wire.labels import validate_label_selector
from onejob.wire.names import subdomain_errors
from onejob.wire.quantity import parse_quantity

_ACCESS_MODES: Final = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"]
VOLUME_MODES: Final = ["Block", "Filesystem"]


def claim_spec_errors(spec: dict[str, Any], path: str) -> list[FieldError]:
    """Return the errors of the spec of a claim, or of one in an ephemeral volume."""
    errors: list[FieldError] = []
    modes = spec.get("accessModes") or ()
    if not modes:
        errors.append(required(f"{path}.accessModes", "at least 1 access mode is required"))
    if spec.get("selector") is not None:
        errors += validate_label_selector(spec["selector"], f"{path}.selector")
    errors += access_mode_errors(modes, path)
    place = f"{path}.resources[storage]"
    requests = (spec.get("resources") or {}).get("requests") or {}
    if "storage" not in requests:
        errors.append(required(place))
    else:
        errors += positive_errors(requests["storage"], place)
    if name := spec.get("storageClassName"):
        field = f"{path}.storageClassName"
        errors += [invalid(field, name, text) for text in subdomain_errors(name)]
    mode = spec.get("volumeMode")
    if mode is not None and mode not in VOLUME_MODES:
        errors.append(not_supported(f"{path}.volumeMode", mode, VOLUME_MODES))
    return errors


def access_mode_errors(modes: Sequence[str], path: str) -> list[FieldError]:
    place = f"{path}.accessModes"
    errors = [
        not_supported(place, mode, _ACCESS_MODES) for mode in modes if mode not in _ACCESS_MODES
    ]
    others = [mode for mode in modes if mode in _ACCESS_MODES and mode != "ReadWriteOncePod"]
    if "ReadWriteOncePod" in modes and others:
        text = "may not use ReadWriteOncePod with other access modes"
        errors.append(forbidden(place, text))
    return errors


def positive_errors(amount: Any, path: str) -> list[FieldError]:
    quantity = parse_quantity(amount)
    if quantity.nanos > 0:
        return []
    return [invalid(path, str(quantity), "must be greater than zero")]
