"""Lengths of time on the command line and on the screen."""

import click

from onejob.planning.go_duration import DurationError, parse_duration


def duration(text: str) -> float:
    """Seconds of `90s`, `5m`, `1h30m` or a plain number of seconds; a type for click."""
    try:
        if text.replace(".", "", 1).removeprefix("-").isdigit():
            return float(text)
        return parse_duration(text) / 1e9
    except DurationError:
        raise click.BadParameter(f"{text!r} is not a duration such as 90s, 5m or 1h30m") from None


def short_seconds(seconds: float) -> str:
    """For people who watch a run: `0.4s`, `12s`, `3m05s`, `2h07m`. Never below zero, also when the
    clock was set back meanwhile."""
    seconds = max(seconds, 0.0)
    if seconds < 10:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02}m"
