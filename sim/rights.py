"""Simulated RBAC: the control plane's role occasionally lacks a permission for a while."""

import asyncio

from onejob.client.base import Bind, Create, Delete, Evict, Op, Patch, Replace
from onejob.wire.errors import Forbidden
from sim.faults import Chance

_MAX_REVOKED_SECONDS = 30.0
_VERBS: dict[type[Op], str] = {
    Create: "create",
    Replace: "update",
    Patch: "patch",
    Delete: "delete",
    Bind: "create",
    Evict: "create",
}


class Rights:
    """Permissions of the control plane; the next process has the same role."""

    def __init__(self, dice: Chance) -> None:
        self._dice = dice
        #: Denied verbs and resources, with the time at which each denial ends.
        self._denied: dict[tuple[str, str], float] = {}

    def require(self, verb: str, resource: str) -> None:
        """Raise Forbidden if the verb is denied at the moment."""
        now = asyncio.get_running_loop().time()
        if self._dice.happens("right taken away"):
            # Deny the permission being requested: thereby it is one that is in use.
            seconds = self._dice.up_to("right taken away", _MAX_REVOKED_SECONDS)
            self._denied[verb, resource] = now + seconds
        if not self._dice.calm and now < self._denied.get((verb, resource), 0.0):
            self._dice.count("request denied")
            raise Forbidden(f"cannot {verb} {resource}: the simulation took the right away")

    def require_write(self, op: Op) -> None:
        """Raise Forbidden if the verb of this write is denied at the moment."""
        resource = op.resource if isinstance(op, Create) else op.key.resource
        subresource = "binding" if isinstance(op, Bind) else getattr(op, "subresource", "")
        name = f"{resource}/{subresource}" if subresource else resource
        self.require(_VERBS[type(op)], name)
