"""What is told of the time that things take, to whoever traces it. Without a tracer nothing here
costs anything: those who would tell ask once, at their start, whether there is one.

`onejob.opentelemetry_traces` is the one implementation; this module imports nothing.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Protocol

Attributes = Mapping[str, str | int]


class Span(Protocol):
    """Something that takes time and has begun."""

    def end(self, name: str, attributes: Attributes, *, failure: str = "") -> None:
        """Under the name that it turned out to have; `failure` "" is a success."""


class Tracer(Protocol):
    def request(self, traceparent: str) -> Span:
        """A request from outside, part of the trace that its header names, or of a new one."""

    def part_of(self, uid: str) -> Span:
        """Something done for the object with this UID, whose trace has the same number."""

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
        """Something that is over. `whole`: it is all that there is of the object, and what else
        belongs to its trace is a part of this."""

    def close(self) -> None:
        """Send what is left. May take a few seconds."""


_current: Tracer | None = None


def current() -> Tracer | None:
    """The tracer of this process."""
    return _current


def use(tracer: Tracer | None) -> None:
    global _current
    _current = tracer
