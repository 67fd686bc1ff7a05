"""Text tables in kubectl's layout, truncated where the terminal would otherwise wrap them."""

from collections.abc import Sequence
from typing import Final

from onejob.cli.display.terminal import visible

_GAP: Final = 3
#: Minimum width of a truncated column; fewer characters are meaningless.
_MIN_TRUNCATED_WIDTH: Final = 8
#: Cells of columns that do not apply.
_UNSET: Final = ("", "<none>")


def render_table(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int,
    *,
    whole: int = 1,
    at_least: Sequence[int] = (),
) -> list[str]:
    """Return the lines of a table, without trailing spaces. No header line if `headers` is empty.

    The first `whole` columns are never truncated: they are names to be used in other commands.
    `at_least` gives minimum column widths, so that rows printed later line up.
    """
    table = [[_one_line(cell) for cell in row] for row in ([headers, *rows] if headers else rows)]
    if not table:
        return []
    natural = column_widths(table)
    if at_least:
        natural = list(map(max, natural, at_least))
    widths = _fit(natural, width, whole)
    return [
        (" " * _GAP)
        .join(_truncate(cell, width).ljust(width) for cell, width in zip(row, widths, strict=True))
        .rstrip()
        for row in table
    ]


def _one_line(cell: str) -> str:
    return visible(cell).replace("\n", "\\n").replace("\t", "\\t")


def column_widths(table: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*table, strict=True)]


def fits(table: Sequence[Sequence[str]], width: int) -> bool:
    """Return whether the table fits without truncation."""
    widths = column_widths(table)
    return sum(widths) + _GAP * (len(widths) - 1) <= width


def without_empty_columns(
    headers: Sequence[str], rows: Sequence[Sequence[str]]
) -> tuple[list[str], list[list[str]]]:
    """Return the table without columns that are empty in every row, to save width."""
    kept = [i for i in range(len(headers)) if any(row[i] not in _UNSET for row in rows)]
    return [headers[i] for i in kept], [[row[i] for i in kept] for row in rows]


def _fit(widths: list[int], available: int, whole: int) -> list[int]:
    """Shrink the widest column until all fit, or until none can shrink further."""
    fitted = list(widths)
    excess = sum(fitted) + _GAP * (len(fitted) - 1) - available
    columns = range(whole, len(fitted))
    while excess > 0 and columns:
        widest = max(columns, key=fitted.__getitem__)
        rest = max((fitted[i] for i in columns if i != widest), default=0)
        target = max(fitted[widest] - excess, min(rest, fitted[widest] - 1), _MIN_TRUNCATED_WIDTH)
        if target >= fitted[widest]:
            break
        excess -= fitted[widest] - target
        fitted[widest] = target
    # A table that wraps anyway is better left complete; with `whole` 0 it must not wrap.
    return list(widths) if excess > 0 and whole else fitted


def _truncate(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
