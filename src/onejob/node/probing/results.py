"""Probe results, as reported to the node agent."""

from msgspec import Struct


class Probed(Struct, frozen=True, gc=False):
    """Result of a probe of an attempt; None for aspects that it does not cover."""

    container: str
    attempt: int
    started: bool | None = None
    ready: bool | None = None
    unhealthy: bool | None = None
