"""What the checks ask of a machine: what it was asked to run, and what really ran."""

from collections.abc import Mapping, Sequence, Set
from typing import Protocol

from onejob.node.runtime import AttemptRef
from sim.machine import Launch


class Ran(Protocol):
    """One attempt whose program was started."""

    @property
    def ref(self) -> AttemptRef: ...

    @property
    def code(self) -> int | None:
        """How it ended, or will."""

    def state(self, now: float) -> str:
        """`ended`, or something else."""


class Machinery(Protocol):
    @property
    def ran(self) -> Mapping[AttemptRef, Ran]: ...

    @property
    def launches(self) -> Sequence[Launch]: ...

    @property
    def problems(self) -> Sequence[str]: ...

    @property
    def unknowable(self) -> Set[AttemptRef]:
        """Attempts of which nobody can be expected to know how they ended."""

    def left_over(self) -> Sequence[str]:
        """What still runs, and should not."""
