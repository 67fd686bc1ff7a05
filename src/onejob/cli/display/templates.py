"""JSONPath output of `onejob get`: `-o jsonpath`, `-o custom-columns`, `--sort-by`. Pure.

The syntax is kubectl's, with these steps: `.name`, `['name']`, `[0]`, `[-1]`, `[*]` and
`[?(@.field=="text")]`.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from onejob.api.crd.columns import BadPath, JsonPath, parse_path, printed
from onejob.cli.errors import CommandError

_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r"}
#: Quoted strings may contain braces.
_PARTS: Final = re.compile(r"""\{((?:"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[^{}"'])*)\}|([^{}]+)""")
#: A comma followed by another column, as opposed to one within a path.
_NEXT_COLUMN: Final = re.compile(r",(?=[^,:\[\]]+:)")


class Part(msgspec.Struct, frozen=True):
    """Literal text, the values at a path, or parts repeated for each of these values."""

    text: str = ""
    path: JsonPath | None = None
    repeated: "tuple[Part, ...] | None" = None


def parse_template(text: str) -> tuple[Part, ...]:
    """Parse `{.metadata.name}{"\\n"}`, `{range .items[*]}...{end}`. Raises CommandError."""
    if "{" not in text:
        raise _template_error(text, "expected paths in braces: {.metadata.name}")
    return _parse(text, _pieces(text), in_range=False)


def render_template(parts: Sequence[Part], document: Any) -> str:
    shown = []
    for part in parts:
        if part.path is None:
            shown.append(part.text)
        elif part.repeated is not None:
            shown += [render_template(part.repeated, item) for item in part.path.all(document)]
        else:
            shown.append(" ".join(printed(value) for value in part.path.all(document)))
    return "".join(shown)


def parse_columns(text: str) -> list[tuple[str, JsonPath]]:
    """Parse `NAME:.metadata.name,PHASE:.status.phase`. Raises CommandError."""
    columns = []
    for item in _NEXT_COLUMN.split(text):
        header, colon, path = item.partition(":")
        if not header or not colon or not path:
            raise _template_error(item, "for example NAME:.metadata.name,PHASE:.status.phase")
        columns.append((header, relaxed_path(path)))
    return columns


def column_cells(columns: Sequence[tuple[str, JsonPath]], document: Any) -> list[str]:
    return [
        ",".join(printed(value) for value in path.all(document)) or "<none>" for _, path in columns
    ]


def relaxed_path(text: str) -> JsonPath:
    """Parse a path whose braces and first dot may be omitted. Raises CommandError."""
    inner = text.strip()
    if inner.startswith("{") and inner.endswith("}"):
        inner = inner[1:-1].strip()
    return _path(inner if inner.startswith((".", "[", "$", "@")) else f".{inner}")


#: Sort key of documents without the field; sorts first.
NO_VALUE: Final = (0, 0)


def sort_key(path: JsonPath, document: Any) -> tuple[int, Any]:
    """Return a key that sorts missing values first, then numbers, then everything else as text."""
    value = path.first(document)
    if value is None:
        return NO_VALUE
    if isinstance(value, int | float):
        return 1, value
    return 2, printed(value)


def _pieces(text: str) -> Iterator[tuple[str | None, str]]:
    """Yield (content of braces, "") or (None, literal text between braces)."""
    position = 0
    while position < len(text):
        match = _PARTS.match(text, position)
        if match is None:
            raise _template_error(text[position:], "missing brace or quote")
        yield (None, match[2]) if match[1] is None else (match[1].strip(), "")
        position = match.end()


def _parse(
    text: str, pieces: Iterator[tuple[str | None, str]], *, in_range: bool
) -> tuple[Part, ...]:
    parts = []
    for inner, literal in pieces:
        if inner is None:
            parts.append(Part(literal))
        elif inner == "end":
            if not in_range:
                raise _template_error(text, "{end} without {range}")
            return tuple(parts)
        elif inner.startswith("range "):
            path = _path(inner.removeprefix("range ").strip())
            parts.append(Part(path=path, repeated=_parse(text, pieces, in_range=True)))
        elif inner[:1] in ("'", '"'):
            escaped = re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), inner[1:-1])
            parts.append(Part(escaped))
        else:
            parts.append(Part(path=_path(inner)))
    if in_range:
        raise _template_error(text, "{range} without {end}")
    return tuple(parts)


def _path(text: str) -> JsonPath:
    steps = text.removeprefix("$").removeprefix("@")
    if steps in ("", "."):
        if not text:
            raise _template_error("{}", "missing path")
        return JsonPath(())
    try:
        return parse_path(steps)
    except BadPath as error:
        raise _template_error(text, str(error)) from None


def _template_error(text: str, why: str) -> CommandError:
    return CommandError(f"invalid template {text!r}: {why}", "see onejob get --help")
