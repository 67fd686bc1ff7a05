"""Logging of servers to stderr: as text or as JSON lines."""

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import click
import msgspec

F = TypeVar("F", bound=Callable[..., Any])

_LEVELS: Final = (logging.WARNING, logging.INFO, logging.DEBUG)
_TEXT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def log_options(function: F) -> F:
    """Add logging options; the command receives `verbose` and `log_format`."""
    for option in (
        click.option(
            "--log-format",
            type=click.Choice(["text", "json"]),
            default="text",
            show_default=True,
            help="Log as text lines, or as one JSON object per line.",
        ),
        click.option("-v", "--verbose", count=True, help="Log more; twice for debug messages."),
    ):
        function = option(function)
    return function


def log_to_stderr(verbose: int, log_format: str) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if log_format == "json" else logging.Formatter(_TEXT))
    logging.basicConfig(level=_LEVELS[min(verbose, 2)], handlers=[handler])


class JsonLines(logging.Formatter):
    """JSON formatter: one object per record, with its traceback, so that each line is complete."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        # Id of the request; its response has the same in the Audit-Id header.
        if request := getattr(record, "request", ""):
            line["request"] = request
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()
