"""Interface between the checks and a simulated machine: launch requests and processes that ran."""

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
        """Return the exit code, also a future one; None if it has none yet."""

    def state(self, now: float) -> str:
        """Return `ended` or any other state at loop time `now`."""


class Machinery(Protocol):
    """The machine of a world, as far as the checks use it."""

    @property
    def ran(self) -> Mapping[AttemptRef, Ran]: ...

    @property
    def launches(self) -> Sequence[Launch]: ...

    @property
    def problems(self) -> Sequence[str]: ...

    @property
    def unknowable(self) -> Set[AttemptRef]:
        """Return the attempts whose exit code the control plane cannot determine."""

    def left_over(self) -> Sequence[str]:
        """Return descriptions of processes that still run and should not."""
