"""Tracing interface, which costs nothing without a tracer.

Components check once, at their start, whether tracing is enabled. `onejob.opentelemetry_traces` is
the only implementation; this module imports nothing of onejob.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Protocol

Attributes = Mapping[str, str | int]


class Span(Protocol):
    """Started span."""

    def end(self, name: str, attributes: Attributes, *, failure: str = "") -> None:
        """End the span under its final name; a non-empty `failure` marks it as failed."""


class Tracer(Protocol):
    def request(self, traceparent: str) -> Span:
        """Start the span of an incoming request.

        It belongs to the trace of its traceparent header, or to a new one.
        """

    def part_of(self, uid: str) -> Span:
        """Start a span in the trace of the object with this UID.

        The trace id is derived from the UID.
        """

    def record(
        self,
        name: str,
        uid: str,
        start: datetime,
        end: datetime,
        attributes: Attributes,
        *,
        whole: bool = False,
        failure: str = "",
    ) -> None:
        """Record a span that has already ended.

        `whole`: it is the root span of the object's trace, and all other spans of that trace are
        its children.
        """

    def close(self) -> None:
        """Export the remaining spans. May take a few seconds."""


_current: Tracer | None = None


def current() -> Tracer | None:
    """Return the tracer of this process; None if tracing is disabled."""
    return _current


def use(tracer: Tracer | None) -> None:
    global _current
    _current = tracer
