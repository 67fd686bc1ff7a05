"""JSON patch (RFC 6902) and JSON merge patch (RFC 7386).

Pure: the arguments are not modified. The result of a merge patch shares the parts that the patch
does not change with the document.
"""

from typing import Any, Final

import msgspec

from onejob.api.decoding.json_reading import is_too_deep
from onejob.api.documents import deep_copy
from onejob.api.strategy import Document
from onejob.wire.errors import ApiError, BadRequest

#: Upstream's limits for one JSON patch: number of operations, and bytes added by `copy`.
MAX_OPERATIONS: Final = 10_000
MAX_COPIED_BYTES: Final = 3 * 1024 * 1024


class PatchFailed(ApiError):
    """The patch is well-formed but cannot be applied to this document."""

    code, reason = 422, "Invalid"


class FailedTest(PatchFailed):
    """A `test` operation found another value."""


def merge_patch(doc: Document, patch: Document) -> Document:
    """Return the patched document: objects merge, null removes, all other values replace."""
    return _merge(doc, patch)


def _merge(target: Any, patch: Document) -> Document:
    """Return the target with a merge patch applied; the target is not modified."""
    if not isinstance(target, dict):
        target = {}
    merged: Document = target.copy()
    for name, value in patch.items():
        if isinstance(value, dict):
            merged[name] = _merge(target.get(name), value)
        elif value is not None:
            merged[name] = deep_copy(value)
        elif name in merged:
            del merged[name]
    return merged


def json_patch(doc: Document, operations: list[Any]) -> Document:
    """Return a patched copy of the document.

    Raises:
        BadRequest: if `operations` is not a JSON patch or has too many operations.
        PatchFailed: if an operation cannot be applied to the document.
    """
    if len(operations) > MAX_OPERATIONS:
        raise BadRequest(
            f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, "
            f"got {len(operations)}"
        )
    root: Any = deep_copy(doc)
    copied_bytes = 0
    try:
        for operation in operations:
            if not isinstance(operation, dict):
                raise BadRequest("error decoding patch: every operation must be an object")
            if operation.get("op") == "copy":
                # Copies of copies grow exponentially: forty operations could exhaust any memory.
                copied_bytes += len(msgspec.json.encode(_source(root, operation)))
                _require_bounded(copied_bytes)
            root = _operate(root, operation)
    except RecursionError:
        raise _too_deep_error() from None
    if not isinstance(root, dict):
        raise PatchFailed("the patched value is not an object")
    if is_too_deep(root):
        raise _too_deep_error()
    return root


def _operate(root: Any, operation: Document) -> Any:
    """Return the document after one operation, modified in place. Raises PatchFailed."""
    verb = operation.get("op")
    path = _pointer(operation, "path")
    match verb:
        case "add":
            return _add(root, path, _value(operation))
        case "remove":
            return _remove(root, path)[0]
        case "replace":
            if path:
                _get(root, path, "replace")
                if isinstance(_get(root, path[:-1], "replace"), list):
                    root = _remove(root, path)[0]
            return _add(root, path, _value(operation))
        case "move":
            source = _pointer(operation, "from")
            if path[: len(source)] == source and path != source:
                raise PatchFailed(f"move operation: cannot move {_text(source)} into itself")
            root, value = _remove(root, source)
            return _add(root, path, value)
        case "copy":
            return _add(root, path, deep_copy(_source(root, operation)))
        case "test":
            _test(root, path, operation.get("value"))
            return root
        case _:
            raise PatchFailed(f"Unexpected kind: {verb}")


def _require_bounded(copied_bytes: int) -> None:
    if copied_bytes > MAX_COPIED_BYTES:
        raise PatchFailed(
            "Unable to complete the copy, the accumulated size increase of copy is "
            f"{copied_bytes}, exceeding the limit {MAX_COPIED_BYTES}"
        )


def _too_deep_error() -> PatchFailed:
    return PatchFailed("the patched value exceeds the maximum depth")


def _source(root: Any, operation: Document) -> Any:
    """Return the value that a `copy` operation refers to. Raises PatchFailed."""
    return _get(root, _pointer(operation, "from"), "copy")


def _value(operation: Document) -> Any:
    """Return a copy of the operation's value. Raises PatchFailed if it has none."""
    if "value" not in operation:
        raise PatchFailed(f"{operation['op']} operation: missing value")
    return deep_copy(operation["value"])


def _pointer(operation: Document, name: str) -> list[str]:
    """Return the path of a JSON pointer in the operation. Raises PatchFailed."""
    text = operation.get(name)
    if not isinstance(text, str):
        raise PatchFailed(f"{operation.get('op')} operation: missing {name} field")
    if text and not text.startswith("/"):
        raise PatchFailed(f'{operation.get("op")} operation: bad path "{text}"')
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _get(root: Any, path: list[str], verb: str) -> Any:
    """Return the value at a path. Raises PatchFailed."""
    value = root
    for position, part in enumerate(path):
        if isinstance(value, dict) and part in value:
            value = value[part]
        elif isinstance(value, list):
            value = value[_index(part, len(value) - 1, path)]
        else:
            raise _missing_error(verb, path[: position + 1])
    return value


def _add(root: Any, path: list[str], value: Any) -> Any:
    """Return the document with the value added, modified in place. Raises PatchFailed."""
    if not path:
        return value
    *parents, last = path
    holder = _get(root, parents, "add")
    if isinstance(holder, dict):
        holder[last] = value
    elif isinstance(holder, list):
        position = len(holder) if last == "-" else _index(last, len(holder), path)
        holder.insert(position, value)
    else:
        raise _missing_error("add", path)
    return root


def _remove(root: Any, path: list[str]) -> tuple[Any, Any]:
    """Return the document without the value at the path, modified in place, and that value. Raises
    PatchFailed."""
    if not path:
        raise PatchFailed("remove operation: cannot remove the whole document")
    *parents, last = path
    holder = _get(root, parents, "remove")
    if isinstance(holder, dict) and last in holder:
        return root, holder.pop(last)
    if isinstance(holder, list):
        return root, holder.pop(_index(last, len(holder) - 1, path))
    raise _missing_error("remove", path)


def _test(root: Any, path: list[str], expected: Any) -> None:
    """Raise PatchFailed unless the value at the path equals the expected one; an absent value
    equals null."""
    try:
        actual = _get(root, path, "test")
    except PatchFailed:
        # An absent value equals null, as in upstream's library.
        if expected is None:
            return
        raise
    if not _same(actual, expected):
        raise FailedTest(f"testing value {_text(path)} failed: test failed")


def _same(a: Any, b: Any) -> bool:
    """Return whether two JSON values are equal. Unlike in Python, 1 and true are different."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[name], b[name]) for name in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same, a, b))
    return bool(a == b)


def _index(part: str, largest: int, path: list[str]) -> int:
    """Return a list index from 0 to `largest`. Raises PatchFailed."""
    negative = part.startswith("-")
    digits = part[1:] if negative else part
    if not (digits.isascii() and digits.isdigit() and len(digits) < 10):
        raise PatchFailed(f'invalid array index "{part}" in {_text(path)}')
    # Upstream counts negative indexes from the end.
    index = largest + 1 - int(digits) if negative else int(digits)
    if not 0 <= index <= largest:
        raise PatchFailed(f"Unable to access invalid index: {part}: {_text(path)}")
    return index


def _missing_error(verb: str, path: list[str]) -> PatchFailed:
    return PatchFailed(f"{verb} operation does not apply: doc is missing path: {_text(path)}")


def _text(path: list[str]) -> str:
    """Return a path as a quoted JSON pointer."""
    return '"' + "".join("/" + p.replace("~", "~0").replace("/", "~1") for p in path) + '"'
