"""Start gates of Jobs: conditions that must hold before the Job controller acts on a Job."""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from onejob.objects.job import Job
from onejob.objects.meta import Key


class StartGate(Protocol):
    """Admission of Jobs to syncing. A Job that the gate holds is not acted on."""

    def holds(self, job: Job) -> bool: ...

    def on_let_go(self, call: Callable[[Key], None]) -> None:
        """Call `call` with the key of each Job that was held and no longer is."""


class HeldJobs:
    """Jobs that a gate has withheld from the Job controller, until it lets them go."""

    def __init__(self) -> None:
        self._keys: set[Key] = set()
        self._call: Callable[[Key], None] = lambda key: None

    def on_let_go(self, call: Callable[[Key], None]) -> None:
        self._call = call

    def add(self, key: Key) -> None:
        self._keys.add(key)

    def __iter__(self) -> Iterator[Key]:
        return iter(list(self._keys))

    def let_go(self, key: Key) -> None:
        """Notify the Job controller, if it asked for this Job while it was held."""
        if key in self._keys:
            self._keys.discard(key)
            self._call(key)


class AllGates:
    """Several gates in order; a Job starts once none of them holds it."""

    def __init__(self, gates: Sequence[StartGate]) -> None:
        self._gates = gates

    def holds(self, job: Job) -> bool:
        return any(gate.holds(job) for gate in self._gates)

    def on_let_go(self, call: Callable[[Key], None]) -> None:
        for gate in self._gates:
            gate.on_let_go(call)
