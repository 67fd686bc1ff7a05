"""Text report of benchmark outcomes: a table per scenario, and all targets together at the end."""

from collections.abc import Sequence
from typing import Final

from onejob.benchmarks.comparing.rounds import Compared
from onejob.benchmarks.results import Outcome, Peer, number
from onejob.cli.display.tables import render_table
from onejob.cli.display.terminal import Terminal

_VERDICTS: Final = {True: "met", False: "NOT MET", None: ""}
_INDENT: Final = "  "


def render_outcome(outcome: Outcome, terminal: Terminal) -> list[str]:
    """Return a table with figures as rows; onejob, the target and each peer as columns."""
    lines = [f"{terminal.paint(outcome.scenario, 'bold')}  {outcome.question}"]
    if outcome.problem:
        return [*lines, f"{_INDENT}cannot measure: {outcome.problem}"]
    peers = [peer for peer in outcome.peers if _has_common_figure(outcome, peer)]
    headers = ["FIGURE", "ONEJOB", "TARGET", ""]
    headers += [peer.name.upper() + ("*" if peer.elsewhere else "") for peer in peers]
    rows = [
        [
            figure,
            number(value),
            target.text() if (target := outcome.targets.get(figure)) else "",
            _VERDICTS[outcome.verdict(figure)],
            *(_figure(peer, figure) for peer in peers),
        ]
        for figure, value in outcome.measured.figures.items()
    ]
    used = [column for column in range(len(headers)) if any(row[column] for row in rows)]
    table = [[row[column] for column in used] for row in rows]
    shown = render_table([headers[c] for c in used], table, terminal.width - len(_INDENT))
    lines += [_INDENT + _color_verdict(line, terminal) for line in shown]
    for peer in outcome.peers:
        if peer.measured.skipped:
            lines.append(f"{_INDENT}{peer.name}: skipped, {peer.measured.skipped}")
    if any(peer.elsewhere for peer in peers):
        lines.append(terminal.paint(f"{_INDENT}* measured elsewhere", "dim"))
    return lines


def render_targets(outcomes: Sequence[Outcome], terminal: Terminal) -> list[str]:
    """Return a table of all targets; [] if no scenario was measured at full size."""
    rows = [
        [
            outcome.scenario,
            figure,
            number(outcome.measured.figures[figure]),
            target.text(),
            _VERDICTS[verdict],
        ]
        for outcome in outcomes
        for figure, target in outcome.targets.items()
        if (verdict := outcome.verdict(figure)) is not None
    ]
    if not rows:
        return []
    met = sum(row[-1] == _VERDICTS[True] for row in rows)
    headers = ["SCENARIO", "FIGURE", "ONEJOB", "TARGET", ""]
    table = [_color_verdict(line, terminal) for line in render_table(headers, rows, terminal.width)]
    return [*table, f"{met} of {len(rows)} targets met"]


def render_comparison(
    title: str, other: str, compared: Sequence[Compared], terminal: Terminal
) -> list[str]:
    """Return a table that compares two revisions, with figures as rows.

    Columns are their ratio, and their share of each limit.
    """
    limits = list(dict.fromkeys(limit for row in compared for limit in row.by_limit))
    headers = ["FIGURE", other.upper(), "THIS", "RATIO", "LOWEST", "HIGHEST"]
    headers += [f"BY {limit.upper()}" for limit in limits]
    rows = [
        [
            row.figure,
            number(row.other),
            number(row.this),
            *(f"{value:.2f}" for value in (row.ratio.middle, row.ratio.lowest, row.ratio.highest)),
            *(_by_limit(row.by_limit.get(limit)) for limit in limits),
        ]
        for row in compared
    ]
    shown = render_table(headers, rows, terminal.width - len(_INDENT))
    return [terminal.paint(title, "bold"), *(_INDENT + line for line in shown)]


def _by_limit(both: tuple[float, float] | None) -> str:
    return "" if both is None else f"{both[0]:.2f} → {both[1]:.2f}"


def _has_common_figure(outcome: Outcome, peer: Peer) -> bool:
    return any(figure in peer.measured.figures for figure in outcome.measured.figures)


def _figure(peer: Peer, figure: str) -> str:
    value = peer.measured.figures.get(figure)
    return "" if value is None else number(value)


def _color_verdict(line: str, terminal: Terminal) -> str:
    return terminal.paint(line, "red") if _VERDICTS[False] in line else line
