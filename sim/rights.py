"""What the control plane may do: now and then its role lacks a right for a while."""

import asyncio

from onejob.client.base import Bind, Create, Delete, Evict, Op, Patch, Replace
from onejob.wire.errors import Forbidden
from sim.faults import Chance

_LONGEST_SECONDS = 30.0
_VERBS: dict[type[Op], str] = {
    Create: "create",
    Replace: "update",
    Patch: "patch",
    Delete: "delete",
    Bind: "create",
    Evict: "create",
}


class Rights:
    """Outlive processes: the next one has the same role."""

    def __init__(self, dice: Chance) -> None:
        self._dice = dice
        #: What is denied, and until when.
        self._denied: dict[tuple[str, str], float] = {}

    def require(self, verb: str, resource: str) -> None:
        """Raises Forbidden."""
        now = asyncio.get_running_loop().time()
        if self._dice.happens("right taken away"):
            # From whoever asks now: so it is a right that is used.
            seconds = self._dice.up_to("right taken away", _LONGEST_SECONDS)
            self._denied[verb, resource] = now + seconds
        if not self._dice.calm and now < self._denied.get((verb, resource), 0.0):
            self._dice.count("request denied")
            raise Forbidden(f"cannot {verb} {resource}: the simulation took the right away")

    def require_write(self, op: Op) -> None:
        """Raises Forbidden."""
        resource = op.resource if isinstance(op, Create) else op.key.resource
        subresource = "binding" if isinstance(op, Bind) else getattr(op, "subresource", "")
        name = f"{resource}/{subresource}" if subresource else resource
        self.require(_VERBS[type(op)], name)
