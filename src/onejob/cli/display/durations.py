"""Durations on the command line."""

import click

from onejob.planning.go_duration import DurationError, parse_duration


def duration(text: str) -> float:
    """Parse `90s`, `5m`, `1h30m` or a plain number into seconds; a parameter type for click."""
    try:
        if text.replace(".", "", 1).removeprefix("-").isdigit():
            return float(text)
        return parse_duration(text) / 1e9
    except DurationError:
        raise click.BadParameter(f"{text!r} is not a duration such as 90s, 5m or 1h30m") from None
