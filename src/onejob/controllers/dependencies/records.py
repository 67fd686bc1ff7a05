"""Recorded ends of Jobs that may no longer exist."""

from typing import NamedTuple


class RecordedEnd(NamedTuple):
    #: Complete or Failed.
    condition: str
    reason: str
