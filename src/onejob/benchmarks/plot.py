"""SVG plot of cost against size, written without a plotting library: a few lines, a few labels."""

from collections.abc import Sequence
from math import log10

_WIDTH, _HEIGHT = 640, 360
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 30, 50, 60
_GROWTH = 1.3


def cost_plot(curve: Sequence[tuple[int, float]]) -> str:
    """Return CPU per Pod (linear) against completions (logarithmic), with the accepted band."""
    sizes, costs = [size for size, _ in curve], [cost for _, cost in curve]
    cheapest = min(costs)
    top = max(*costs, cheapest * _GROWTH) * 1.15

    def x(size: float) -> float:
        span = log10(sizes[-1]) - log10(sizes[0])
        return _LEFT + (log10(size) - log10(sizes[0])) / span * (_WIDTH - _LEFT - _RIGHT)

    def y(cost: float) -> float:
        return _HEIGHT - _BOTTOM - cost / top * (_HEIGHT - _TOP - _BOTTOM)

    right, floor = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    band = y(cheapest) - y(cheapest * _GROWTH)
    points = " ".join(f"{x(size):.1f},{y(cost):.1f}" for size, cost in curve)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}"'
        f' viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" font-size="13">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
        _text(_WIDTH / 2, 26, "CPU time per Pod against completions of one Job", size=16),
        f'<rect x="{_LEFT}" y="{y(cheapest * _GROWTH):.1f}" width="{right - _LEFT}"'
        f' height="{band:.1f}" fill="#e6f2e6"/>',
        _text(right - 4, y(cheapest * _GROWTH) + 15, f"within {_GROWTH}×", anchor="end"),
        f'<path d="M{_LEFT},{_TOP} V{floor} H{right}" fill="none" stroke="#444444"/>',
        f'<polyline points="{points}" fill="none" stroke="#1f5fbf" stroke-width="2"/>',
    ]
    for size, cost in curve:
        parts.append(f'<circle cx="{x(size):.1f}" cy="{y(cost):.1f}" r="4" fill="#1f5fbf"/>')
        parts.append(_text(x(size), y(cost) - 10, f"{cost:.0f} µs"))
        parts.append(_text(x(size), floor + 20, f"{size:,}"))
    parts += [
        _text(_LEFT - 8, y(cost) + 4, f"{cost:.0f}", anchor="end") for cost in (0.0, top / 2, top)
    ]
    parts.append(_text((_LEFT + right) / 2, _HEIGHT - 14, "completions"))
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def _text(x: float, y: float, text: str, *, anchor: str = "middle", size: int = 13) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"'
        f' fill="#222222">{text}</text>'
    )
