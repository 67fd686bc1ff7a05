"""Lazy start of the mirror controller.

Without a mirrored Job there is no controller, no timer and no import.
"""

import asyncio
import sys
from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, Final

from onejob.client.base import Client
from onejob.clock import Clock
from onejob.informers.cache import Delta
from onejob.informers.shared import SharedInformers
from onejob.objects.job import Job
from onejob.planning.mirror.names import MANAGER
from onejob.planning.mirror.need import needs_mirror

if TYPE_CHECKING:
    from onejob.client.kubeconfig import Connection
    from onejob.controllers.mirror.controller import MirrorController

_CONTROLLER: Final = "onejob.controllers.mirror.controller"


class MirrorOnDemand:
    """Starter of the mirror controller, which most servers never need."""

    def __init__(
        self,
        client: Client,
        informers: SharedInformers,
        *,
        clock: Clock,
        connect: Callable[["Connection"], Client],
        stand_ins: bool = True,
    ) -> None:
        """`connect` creates the client of a target.

        `stand_ins`: whether to maintain local stand-ins for remote Pods.
        """
        self._client = client
        self._informers = informers
        self._clock = clock
        self._connect = connect
        self._stand_ins = stand_ins
        self._controller: MirrorController | None = None
        #: Changes of mirrored Jobs that arrived before there was a controller.
        self._early: list[Delta[Job]] = []
        self._wanted = asyncio.Event()
        informers.jobs.on_change(self._changed)

    async def run(self) -> None:
        """Wait for the first mirrored Job, then run the controller until cancelled."""
        await self._wanted.wait()
        if _CONTROLLER not in sys.modules:
            # These imports take some 100 ms, during which the event loop would stand still.
            await asyncio.to_thread(_import_controller)
        self._controller = self._new_controller()
        self._controller.jobs_changed(self._early)
        self._early = []
        await self._controller.run()

    @property
    def controller(self) -> "MirrorController | None":
        """The controller; None until the first mirrored Job."""
        return self._controller

    def _changed(self, deltas: Sequence[Delta[Job]]) -> None:
        """Pass changes of mirrored Jobs on; keep them until the controller runs."""
        ours = [
            delta
            for delta in deltas
            if (job := delta.new or delta.old) is not None and job.spec.managed_by == MANAGER
        ]
        if not ours:
            return
        if self._controller is not None:
            self._controller.jobs_changed(ours)
        elif self._early or any(needs_mirror(delta.new) for delta in ours):
            self._early += ours
            self._wanted.set()

    def _new_controller(self) -> "MirrorController":
        """Return the controller."""
        from onejob.controllers.mirror.controller import MirrorController

        return MirrorController(
            self._client,
            self._informers,
            clock=self._clock,
            connect=self._connect,
            stand_ins=self._stand_ins,
        )


def _import_controller() -> None:
    """Import the mirror controller and the HTTP client that it uses."""
    import onejob.client.http
    import onejob.controllers.mirror.controller  # noqa: F401


def http_connection(rng: Random) -> Callable[["Connection"], Client]:
    """Return a factory of HTTP clients for targets.

    The HTTP client is imported at its first call.
    """

    def connect(connection: "Connection") -> Client:
        from onejob.client.answers import UNTRUSTED
        from onejob.client.http import HttpClient

        return HttpClient(connection, rng=rng, limits=UNTRUSTED)

    return connect
