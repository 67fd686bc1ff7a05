"""Registry of the runtime's attempts and their stages."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from onejob.node.podman.command import container_name
from onejob.node.runtime import AttemptRef, RuntimeEvent


@dataclass(slots=True)
class Attempt:
    """One attempt. It can be cancelled while `preparing`; from `starting` on, a container may
    exist."""

    ref: AttemptRef
    stage: Literal["preparing", "starting", "running", "over"] = "preparing"
    stop_signal: str = ""
    message_policy: str = "File"
    started_at: datetime | None = None
    #: Last reported event, repeated if the attempt is requested again.
    reported: RuntimeEvent | None = None
    #: Whether the engine announced its end.
    announced: bool = False
    stop_grace: float | None = None
    kill_timer: asyncio.TimerHandle | None = None
    #: Its Pod is released or discarded: its result is not reported.
    unwanted: bool = False
    making: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        """Name of its container."""
        return container_name(self.ref)

    def cancel_kill(self) -> None:
        if self.kill_timer is not None:
            self.kill_timer.cancel()

    def cancel_making(self) -> None:
        if self.making is not None:
            self.making.cancel()


class Attempts:
    """Attempts by reference and by container name."""

    def __init__(self) -> None:
        self._attempts: dict[AttemptRef, Attempt] = {}
        self._names: dict[str, AttemptRef] = {}

    def __iter__(self) -> Iterator[Attempt]:
        return iter(list(self._attempts.values()))

    @property
    def container_names(self) -> list[str]:
        return list(self._names)

    @property
    def refs(self) -> list[AttemptRef]:
        """Return the references of all attempts."""
        return list(self._attempts)

    def add(self, attempt: Attempt) -> Attempt:
        """Register an attempt and return it."""
        self._attempts[attempt.ref] = attempt
        self._names[attempt.name] = attempt.ref
        return attempt

    def get(self, ref: AttemptRef) -> Attempt | None:
        """Return the attempt; None if it is unknown."""
        return self._attempts.get(ref)

    def running(self, ref: AttemptRef) -> Attempt | None:
        """Return the attempt if it is running, else None."""
        attempt = self._attempts.get(ref)
        return attempt if attempt is not None and attempt.stage == "running" else None

    def by_name(self, name: str) -> Attempt | None:
        """Return the attempt of a container name; None if it is unknown."""
        ref = self._names.get(name)
        return None if ref is None else self._attempts.get(ref)

    def of_pod(self, uid: str) -> list[Attempt]:
        return [attempt for attempt in self._attempts.values() if attempt.ref.uid == uid]

    def long_before(self, ref: AttemptRef) -> list[Attempt]:
        """Return earlier attempts of the same container, except for the last one."""
        return [
            attempt
            for attempt in self._attempts.values()
            if attempt.ref[:2] == ref[:2] and attempt.ref.attempt < ref.attempt - 1
        ]

    def remove(self, attempt: Attempt) -> None:
        """Forget an attempt. Raises KeyError if it is unknown."""
        del self._attempts[attempt.ref]
        del self._names[attempt.name]
