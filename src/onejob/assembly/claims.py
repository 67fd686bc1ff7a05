"""Claims: caches, controller, provisioner, and the Pods that wait for claims.

All of it starts with the first claim, volume, or Pod that uses a claim.
"""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onejob.assembly.parts import Controller, Parts
from onejob.controllers.selection import CLAIMS as CONTROLLER
from onejob.informers.cache import Delta
from onejob.informers.workqueue import WorkQueue
from onejob.metrics import QueueName
from onejob.node.runtimes import runtime_kind
from onejob.objects.meta import Key

if TYPE_CHECKING:
    from onejob.controllers.claims.controller import ClaimController
    from onejob.controllers.claims.provisioner import Provisioner
    from onejob.informers.claim_caches import ClaimCaches
    from onejob.node.agent.claims import ClaimHolds

_RESOURCES = ("persistentvolumeclaims", "persistentvolumes")


def claim_folders(data_dir: Path) -> Path:
    """Return the folder of the volumes that are provisioned for claims."""
    return data_dir / "volumes"


class Claims:
    """The capability of one control plane; nothing of it is imported before it is needed."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._caches: ClaimCaches | None = None
        self._wanted = asyncio.Event()
        self._controller: ClaimController | None = None

    def caches(self) -> "ClaimCaches":
        """Return the caches, created and started by the first call, and start the controller."""
        self._wanted.set()
        if self._caches is None:
            from onejob.informers.claim_caches import ClaimCaches

            parts = self._parts
            identities = parts.identities
            client = parts.client if identities is None else identities.informers
            self._caches = ClaimCaches(client)
            parts.controllers.add(self._caches.run())
        return self._caches

    def holds(self, node_name: str) -> "ClaimHolds":
        """Return what holds the node's Pods back until their claims are bound."""
        from onejob.node.agent.claims import ClaimHolds

        return ClaimHolds(self._parts.own_client, node_name, self.caches(), self._note)

    def controller(self) -> Controller:
        """Return the controller, which begins its work when it is needed."""
        for resource in _RESOURCES:
            self._parts.informers.metadata(resource).on_change(self._changed)
        if claim_folders(self._parts.settings.data_dir).exists():
            self._wanted.set()
        return self

    async def run(self) -> None:
        """Run the controller once it is needed."""
        await self._wanted.wait()
        from onejob.controllers.claims.controller import ClaimController

        context = self._parts.controller_context(CONTROLLER)
        self._controller = ClaimController(context, self.caches(), self._provisioner())
        await self._controller.run()

    @property
    def queues(self) -> Mapping[QueueName, WorkQueue[Any]]:
        return {} if self._controller is None else self._controller.queues

    def clock_jumped(self) -> None:
        """Do nothing: no decision about claims depends on the clock."""

    def _changed(self, deltas: Sequence[Delta[Any]]) -> None:
        if any(delta.new is not None for delta in deltas):
            self._wanted.set()

    def _note(self, claim: Key) -> str:
        return "" if self._controller is None else self._controller.note(claim)

    def _provisioner(self) -> "Provisioner | None":
        settings = self._parts.settings
        if not settings.with_node:
            return None
        if not runtime_kind(settings.node.runtime).traits.runs_programs:
            from onejob.node.claims.no_folders import NoFolders

            return NoFolders()
        from onejob.node.claims.folders import FolderProvisioner

        provisioner = FolderProvisioner(claim_folders(settings.data_dir))
        self._parts.on_stop(provisioner.close)
        return provisioner
