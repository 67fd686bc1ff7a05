"""Validation of a Job's annotations about other Jobs: `onejob.dev/after`."""

from typing import Any

from onejob.planning.names import AFTER_ANNOTATION
from onejob.wire.field_errors import FieldError, invalid


def validate_after(metadata: dict[str, Any]) -> list[FieldError]:
    text = metadata.get("annotations", {}).get(AFTER_ANNOTATION)
    if text is None:
        return []
    # Imported on use: most Jobs have no dependencies.
    from onejob.planning.dependencies.annotation import InvalidAfter, parse_after

    try:
        parse_after(text, metadata.get("name", ""))
    except InvalidAfter as error:
        return [invalid(f"metadata.annotations[{AFTER_ANNOTATION}]", text, str(error))]
    return []
