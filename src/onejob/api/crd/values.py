"""Schema validation of values, with upstream's messages.

Ratcheting: a value that an update leaves unchanged is not validated again, so that objects survive
a CRD that became stricter. Old values are matched by field name, by map key, and by the keys of
lists of type `map`.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from msgspec.structs import replace

from onejob.api.crd.formats import FORMATS
from onejob.api.crd.structural import MAP_TYPE, Node
from onejob.api.kinds.metadata import validate_metadata_fields
from onejob.api.schema.shapes import Path, render_path
from onejob.cel.errors import EvaluationError
from onejob.wire.field_errors import (
    FieldError,
    duplicate,
    invalid,
    not_supported,
    required,
    too_long,
    too_many,
    type_invalid,
)

#: Marker for a value without a corresponding old value.
UNRELATED: Final = object()

_INT64: Final = 2**63
_LIMITS: Final = {"int32": 2**31, "int64": _INT64}

Check = Callable[[Any, Path, list[FieldError]], None]


class Validator:
    """Validator of one schema node; nested validators are created on first use."""

    __slots__ = ("_checks", "_items", "_made", "_values", "node")

    def __init__(self, node: Node) -> None:
        self.node = node
        self._made: dict[str, Validator] = {}
        self._checks = tuple(_checks_of(node))
        self._items: Validator | None = None
        self._values: Validator | None = None

    def check(self, value: Any, old: Any, path: Path, errors: list[FieldError]) -> None:
        """Add the errors of a value to `errors`.

        A value that equals `old` is valid, whatever the schema; UNRELATED means that there is no
        old value.
        """
        if old is not UNRELATED and _unchanged(value, old):
            return
        node = self.node
        if value is None:
            if not node.nullable and (node.type or node.int_or_string):
                _wrong_type(node, "null", path, errors)
            return
        found = _type_of(value)
        if not _type_matches(node, found, value):
            _wrong_type(node, found, path, errors)
        for check in self._checks:
            check(value, path, errors)
        if found == "object":
            self._check_members(value, old, path, errors)
        elif found == "array":
            self._check_items(value, old, path, errors)

    def _check_members(
        self, value: dict[str, Any], old: Any, path: Path, errors: list[FieldError]
    ) -> None:
        node = self.node
        correlated = isinstance(old, dict) and node.raw.get(MAP_TYPE) != "atomic"
        errors += [
            required(render_path((path, name))) for name in node.required if name not in value
        ]
        if node.embedded:
            _check_embedded(value, path, errors)
        for name, member in value.items():
            below = self._made.get(name)
            if below is None:
                schema = node.property(name)
                if schema is not None:
                    below = self._made[name] = Validator(schema)
                elif node.values is not None:
                    below = self._values = self._values or Validator(node.values)
                else:
                    continue
            before = old.get(name, UNRELATED) if correlated else UNRELATED
            below.check(member, before, (path, name), errors)

    def _check_items(
        self, value: list[Any], old: Any, path: Path, errors: list[FieldError]
    ) -> None:
        schema = self.node.items
        if schema is None:
            return
        below = self._items = self._items or Validator(schema)
        before = keyed_items(self.node, old) if isinstance(old, list) else {}
        for index, item in enumerate(value):
            previous = before.get(key_of(self.node, item), UNRELATED) if before else UNRELATED
            below.check(item, previous, (path, index), errors)

    def accepts(self, value: Any) -> bool:
        """Return whether the value is valid."""
        errors: list[FieldError] = []
        self.check(value, UNRELATED, None, errors)
        return not errors


def within(error: FieldError, place: str) -> FieldError:
    """Return the error of a separately validated value with its path below `place`."""
    field = "" if error.field == "<nil>" else error.field
    return replace(error, field=place + (f".{field}" if field[:1] not in ("", "[") else field))


def keyed_items(node: Node, items: list[Any]) -> dict[Any, Any]:
    """Return the items of a list of type `map` by key; empty for other lists."""
    if node.list_type != "map":
        return {}
    return {key_of(node, item): item for item in items}


def key_of(node: Node, item: Any) -> Any:
    """Return the key of an item in a list of type `map`; None if the item is not an object."""
    if not isinstance(item, dict):
        return None
    schema = node.items
    key = []
    for name in node.list_keys:
        below = schema.property(name) if schema is not None else None
        default = below.raw.get("default") if below is not None else None
        value = item.get(name, default)
        key.append((type(value), value if not isinstance(value, (dict, list)) else repr(value)))
    return tuple(key)


def check_lists(value: Any, node: Node, path: Path, errors: list[FieldError]) -> None:
    """Append errors for duplicate items of sets and duplicate keys of maps."""
    if isinstance(value, dict):
        for name, member in value.items():
            if isinstance(member, (dict, list)):
                below = node.property(name) or node.values
                if below is not None:
                    check_lists(member, below, (path, name), errors)
    elif isinstance(value, list) and node.items is not None:
        if node.list_type != "atomic":
            errors += _duplicates(value, node, path)
        for index, item in enumerate(value):
            if isinstance(item, (dict, list)):
                check_lists(item, node.items, (path, index), errors)


def _duplicates(value: list[Any], node: Node, path: Path) -> Iterator[FieldError]:
    """Yield an error for each item of a set or map that repeats an earlier one."""
    seen = set()
    for index, item in enumerate(value):
        if node.list_type == "map":
            if not isinstance(item, dict):
                # Its type is wrong, which another check reports.
                continue
            shown = {name: item[name] for name in node.list_keys if name in item}
            key = key_of(node, item)
        else:
            shown = item
            key = (type(item), item if not isinstance(item, (dict, list)) else repr(item))
        if key in seen:
            yield duplicate(render_path((path, index)), shown)
        seen.add(key)


def _unchanged(value: Any, old: Any) -> bool:
    """Return whether two values are equal and of the same type."""
    return type(value) is type(old) and bool(value == old)


def _type_of(value: Any) -> str:
    """Return the type of a value in JSON Schema."""
    match value:
        case bool():
            return "boolean"
        case str():
            return "string"
        case int():
            # Go represents larger numbers as floats.
            return "integer" if -_INT64 <= value < _INT64 else "number"
        case float():
            return "integer" if value.is_integer() and abs(value) < _INT64 else "number"
        case list():
            return "array"
        case _:
            return "object"


def _type_matches(node: Node, found: str, value: Any) -> bool:
    """Return whether a value of JSON type `found` is allowed."""
    if node.int_or_string:
        return found in ("integer", "string")
    return node.type in ("", found) or (node.type == "number" and found == "integer")


def _wrong_type(node: Node, found: str, path: Path, errors: list[FieldError]) -> None:
    """Add the error of a value of type `found`."""
    wanted = "integer,string" if node.int_or_string else node.type
    field = render_path(path)
    if wanted == "integer" and found == "number":
        form = node.raw.get("format", "")
        known = form in _LIMITS
        errors.append(_no_integer(f"with format {form}" if known else "(default format)", field))
        if known:
            wanted, found = form, "float64"
    errors.append(
        type_invalid(field, found, f'{field} in body must be of type {wanted}: "{found}"')
    )


def _no_integer(form: str, field: str) -> FieldError:
    """Return the error for a non-integer number. Upstream reports it without a field."""
    return invalid("<nil>", "", f"Checked value must be of type integer {form} in {field}")


def _check_embedded(value: dict[str, Any], path: Path, errors: list[FieldError]) -> None:
    errors += [
        required(render_path((path, name)), "must not be empty" if name in value else "")
        for name in ("apiVersion", "kind")
        if not value.get(name)
    ]
    metadata = value.get("metadata")
    if isinstance(metadata, dict):
        errors += validate_metadata_fields(metadata, render_path((path, "metadata")))


# --- checks of a single value ---------------------------------------------------------------


def _checks_of(node: Node) -> Iterator[Check]:
    """Yield the checks that a schema requires of its values."""
    raw = node.raw
    yield from _junctors(node)
    if "minLength" in raw or "maxLength" in raw or raw.get("pattern"):
        yield _text(raw.get("minLength"), raw.get("maxLength"), raw.get("pattern") or "")
    if raw.get("format"):
        check = _format(node, raw["format"])
        if check is not None:
            yield check
    for name in ("multipleOf", "maximum", "minimum"):
        if raw.get(name) is not None:
            yield _NUMBERS[name](raw)
    if "minItems" in raw or "maxItems" in raw:
        yield _size(list, raw.get("minItems"), raw.get("maxItems"), "items")
    if raw.get("enum"):
        yield _enum(raw["enum"])
    if "minProperties" in raw or "maxProperties" in raw:
        yield _size(dict, raw.get("minProperties"), raw.get("maxProperties"), "properties")


def _text(shortest: int | None, longest: int | None, pattern: str) -> Check:
    """Return a check that reports only the first violation, as upstream does."""

    def check(value: Any, path: Path, errors: list[FieldError]) -> None:
        if not isinstance(value, str):
            return
        field = render_path(path)
        if longest is not None and len(value) > longest:
            errors.append(too_long(field, longest))
        elif shortest is not None and len(value) < shortest:
            text = f"{field} in body should be at least {shortest} chars long"
            errors.append(invalid(field, value, text))
        elif pattern and not matches(pattern, value):
            errors.append(invalid(field, value, f"{field} in body should match '{pattern}'"))

    return check


def matches(pattern: str, text: str) -> bool:
    """Return whether RE2, which cannot take exponential time, finds a match; False for an invalid
    pattern."""
    from onejob.cel.library.regex import compile_pattern

    try:
        return compile_pattern(pattern).search(text) is not None
    except (EvaluationError, UnicodeEncodeError):
        return False


def _format(node: Node, name: str) -> Check | None:
    """Return the check of a format; None for an unknown one."""
    if node.type == "integer" and name in _LIMITS:
        limit = _LIMITS[name]

        def check_number(value: Any, path: Path, errors: list[FieldError]) -> None:
            if _type_of(value) == "integer" and not -limit <= value < limit:
                errors.append(_no_integer(f"with format {name}", render_path(path)))

        return check_number
    fits = FORMATS.get(name.replace("-", ""))
    if fits is None or node.type not in ("", "string"):
        return None

    def check_text(value: Any, path: Path, errors: list[FieldError]) -> None:
        if isinstance(value, str) and not fits(value):
            field = render_path(path)
            text = f'{field} in body must be of type {name}: "{value}"'
            errors.append(type_invalid(field, value, text))

    return check_text


def _number_check(refuses: Callable[[Any], bool], describe: Callable[[], str]) -> Check:
    def check(value: Any, path: Path, errors: list[FieldError]) -> None:
        if isinstance(value, (int, float)) and not isinstance(value, bool) and refuses(value):
            field = render_path(path)
            errors.append(invalid(field, value, f"{field} in body should be {describe()}"))

    return check


def _minimum(raw: Mapping[str, Any]) -> Check:
    """Return the check of `minimum` and `exclusiveMinimum`."""
    limit = raw["minimum"]
    if raw.get("exclusiveMinimum"):
        return _number_check(lambda value: value <= limit, lambda: f"greater than {_go(limit)}")
    return _number_check(
        lambda value: value < limit, lambda: f"greater than or equal to {_go(limit)}"
    )


def _maximum(raw: Mapping[str, Any]) -> Check:
    """Return the check of `maximum` and `exclusiveMaximum`."""
    limit = raw["maximum"]
    if raw.get("exclusiveMaximum"):
        return _number_check(lambda value: value >= limit, lambda: f"less than {_go(limit)}")
    return _number_check(lambda value: value > limit, lambda: f"less than or equal to {_go(limit)}")


def _multiple(raw: Mapping[str, Any]) -> Check:
    """Return the check of `multipleOf`."""
    factor = raw["multipleOf"]

    def refuses(value: Any) -> bool:
        if factor <= 0:
            return False
        if isinstance(value, int) and isinstance(factor, int):
            return value % factor != 0
        return not math.isclose(value / factor, round(value / factor), abs_tol=1e-12)

    return _number_check(refuses, lambda: f"a multiple of {_go(factor)}")


_NUMBERS: Final = {"minimum": _minimum, "maximum": _maximum, "multipleOf": _multiple}


def _go(number: float) -> str:
    """Return a number as Go prints a float64."""
    if float(number).is_integer() and abs(number) < 1e21:
        return str(int(number)) if abs(number) < 1e6 else f"{float(number):g}"
    return repr(number)


def _size(
    kind: type[list[Any]] | type[dict[str, Any]],
    smallest: int | None,
    largest: int | None,
    what: str,
) -> Check:
    """Return the check of the number of items or properties."""

    def check(value: Any, path: Path, errors: list[FieldError]) -> None:
        if not isinstance(value, kind):
            return
        size, field = len(value), render_path(path)
        if largest is not None and size > largest:
            errors.append(too_many(field, size, largest))
        if smallest is not None and size < smallest:
            text = f"{field} in body should have at least {smallest} {what}"
            errors.append(invalid(field, size, text))

    return check


def _enum(choices: list[Any]) -> Check:
    """Return the check of `enum`."""

    def check(value: Any, path: Path, errors: list[FieldError]) -> None:
        if not any(_unchanged(value, choice) for choice in choices):
            texts = [choice if isinstance(choice, str) else _json(choice) for choice in choices]
            errors.append(not_supported(render_path(path), value, texts))

    return check


def _json(value: Any) -> str:
    """Return a value in JSON."""
    import msgspec

    return msgspec.json.encode(value).decode()


def _junctors(node: Node) -> Iterator[Check]:
    """Yield the checks of allOf, anyOf, oneOf and not."""
    raw = node.raw
    for schema in raw.get("allOf") or ():
        yield _nested_check(Validator(Node(schema)))
    if raw.get("anyOf") and not node.int_or_string:
        yield _any_of([Validator(Node(schema)) for schema in raw["anyOf"]])
    if raw.get("oneOf"):
        yield _one_of([Validator(Node(schema)) for schema in raw["oneOf"]])
    if raw.get("not"):
        yield _not(Validator(Node(raw["not"])))


def _nested_check(validator: Validator) -> Check:
    """Return a check that applies a validator of a logical junctor."""
    return lambda value, path, errors: validator.check(value, UNRELATED, path, errors)


def _any_of(validators: list[Validator]) -> Check:
    """Return the check that at least one schema accepts the value."""

    def check(value: Any, path: Path, errors: list[FieldError]) -> None:
        if not any(validator.accepts(value) for validator in validators):
            errors.append(_joint(path, "must validate at least one schema (anyOf)"))
            # Upstream reports the errors of the best-matching alternative; this reports those of
            # the first one.
            validators[0].check(value, UNRELATED, path, errors)

    return check


def _one_of(validators: list[Validator]) -> Check:
    """Return the check that exactly one schema accepts the value."""

    def check(value: Any, path: Path, errors: list[FieldError]) -> None:
        valid = sum(validator.accepts(value) for validator in validators)
        if valid != 1:
            found = "none valid" if not valid else f"{valid} valid alternatives"
            text = f"must validate one and only one schema (oneOf). Found {found}"
            errors.append(_joint(path, text))
        if not valid:
            validators[0].check(value, UNRELATED, path, errors)

    return check


def _not(validator: Validator) -> Check:
    """Return the check that a schema rejects the value."""

    def check(value: Any, path: Path, errors: list[FieldError]) -> None:
        if validator.accepts(value):
            errors.append(_joint(path, "must not validate the schema (not)"))

    return check


def _joint(path: Path, text: str) -> FieldError:
    """Return an error of a junctor. Upstream reports it without a field."""
    return invalid("<nil>", "", f'"{render_path(path)}" {text}')
