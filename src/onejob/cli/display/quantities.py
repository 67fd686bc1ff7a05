"""Amounts of resources as text. Pure."""

from typing import Final

_UNITS: Final = ("Ki", "Mi", "Gi", "Ti", "Pi")


def memory_text(amount: int) -> str:
    """Return bytes as text with two or three digits, in binary units: `512Ki`, `1.5Gi`, `940Mi`."""
    value, power = amount / 1024, 0
    while value >= 1000 and power < len(_UNITS) - 1:
        value, power = value / 1024, power + 1
    unit = _UNITS[power]
    return f"{value:.0f}{unit}" if value >= 10 or value == int(value) else f"{value:.1f}{unit}"
