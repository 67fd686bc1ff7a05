"""Validation error of one field, formatted like upstream's."""

from typing import Any, Final

import msgspec
from msgspec import Struct

#: Characters of a client's value or name repeated in a response; no legitimate one is longer.
_MAX_ECHO_LENGTH: Final = 1024


def shortened(text: str, longest: int = _MAX_ECHO_LENGTH) -> str:
    """Truncate a text for a response, which must not be as long as the request."""
    if len(text) <= longest:
        return text
    return f"{text[:longest]}... ({len(text) - longest} more characters)"


class _Omitted:
    def __repr__(self) -> str:
        return "OMITTED"


#: Marks a value left out of the message (upstream omits large or irrelevant values).
OMITTED: Final = _Omitted()

_HEADS: Final = {
    "FieldValueRequired": "Required value",
    "FieldValueInvalid": "Invalid value",
    "FieldValueTypeInvalid": "Invalid value",
    "FieldValueNotSupported": "Unsupported value",
    "FieldValueForbidden": "Forbidden",
    "FieldValueTooLong": "Too long",
    "FieldValueTooMany": "Too many",
    "FieldValueDuplicate": "Duplicate value",
    "FieldValueNotFound": "Not found",
}

_VALUELESS: Final = frozenset({"FieldValueRequired", "FieldValueForbidden", "FieldValueTooLong"})


class FieldError(Struct, frozen=True):
    type: str
    field: str
    value: Any = OMITTED
    detail: str = ""

    @property
    def message(self) -> str:
        """Message without the field path, as in `details.causes[].message`."""
        text = _HEADS[self.type]
        if self.type not in _VALUELESS and not isinstance(self.value, _Omitted):
            text += f": {_render(self.value)}"
        return f"{text}: {shortened(self.detail, 2 * _MAX_ECHO_LENGTH)}" if self.detail else text

    def __str__(self) -> str:
        return f"{shortened(self.field)}: {self.message}"

    def cause(self) -> dict[str, str]:
        """Return the error as a cause of a Status."""
        return {"reason": self.type, "message": self.message, "field": shortened(self.field)}


def _render(value: Any) -> str:
    """Return a value as upstream prints it."""
    if value is None:
        return "null"
    if isinstance(value, str):
        value = shortened(value)
    text = msgspec.json.encode(value).decode()
    if not isinstance(value, str):
        # Go escapes these characters so that the JSON can be embedded in HTML.
        text = text.translate(_ESCAPED)
    return shortened(text, 2 * _MAX_ECHO_LENGTH)


_ESCAPED: Final = str.maketrans({char: f"\\u{ord(char):04x}" for char in "<>&"})


def required(field: str, detail: str = "") -> FieldError:
    """Return the error of a missing field."""
    return FieldError("FieldValueRequired", field, OMITTED, detail)


def invalid(field: str, value: Any, detail: str) -> FieldError:
    """Return the error of an invalid value."""
    return FieldError("FieldValueInvalid", field, value, detail)


def type_invalid(field: str, value: Any, detail: str) -> FieldError:
    return FieldError("FieldValueTypeInvalid", field, value, detail)


def not_supported(field: str, value: Any, supported: list[str]) -> FieldError:
    detail = "supported values: " + ", ".join(f'"{text}"' for text in supported)
    return FieldError("FieldValueNotSupported", field, value, detail)


def forbidden(field: str, detail: str) -> FieldError:
    """Return the error of a field that must not be set."""
    return FieldError("FieldValueForbidden", field, OMITTED, detail)


def too_long(field: str, limit: int) -> FieldError:
    return FieldError("FieldValueTooLong", field, OMITTED, f"may not be more than {limit} bytes")


def too_many(field: str, actual: int, limit: int) -> FieldError:
    items = "item" if limit == 1 else "items"
    return FieldError("FieldValueTooMany", field, actual, f"must have at most {limit} {items}")


def duplicate(field: str, value: Any) -> FieldError:
    """Return the error of a repeated value."""
    return FieldError("FieldValueDuplicate", field, value)


def field_not_found(field: str, value: Any) -> FieldError:
    return FieldError("FieldValueNotFound", field, value)
