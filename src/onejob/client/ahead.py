"""Writes that are answered before they are on disk, for whoever has no effects but writes.

The store commits in the order in which writes are staged, so a later write is never on disk
without the earlier ones, and nobody sees any of them before. A series of writes that rest on each
other, staged without waiting in between, then shares one commit instead of taking one each.
"""

from collections.abc import Sequence
from typing import Protocol

from onejob.client.base import Client, Op, Result, Written
from onejob.client.local import LocalClient, stage_in_turns
from onejob.wire.errors import InternalError
from onejob.wire.requests import Outcome


class Ahead(Protocol):
    """One series of writes, from its first to `durable`."""

    async def write(self, op: Op) -> Written: ...

    async def write_many(self, ops: Sequence[Op]) -> Sequence[Result]: ...

    async def durable(self) -> None:
        """Wait until all that was written is safe. Raises if it was not and never will be."""


class InStep:
    """On any client: each write is safe before it is answered."""

    def __init__(self, client: Client) -> None:
        self.write = client.write
        self.write_many = client.write_many

    async def durable(self) -> None:
        """It is."""


class LocalAhead:
    """On a client in the server's process.

    If the store has to roll a commit back, all that comes after in the series is refused: it was
    decided on what is no more.
    """

    def __init__(self, client: LocalClient) -> None:
        self._client = client
        self._epoch = client.rollbacks
        self._newest = 0

    async def write(self, op: Op) -> Written:
        outcome = self._stage(op)
        return Written(outcome.revision, outcome.document)

    async def write_many(self, ops: Sequence[Op]) -> Sequence[Result]:
        return await stage_in_turns(ops, self._stage, self._client.look_ahead)

    async def durable(self) -> None:
        self._require_kept()
        await self._client.durable(self._newest)

    def _stage(self, op: Op) -> Outcome:
        self._require_kept()
        outcome = self._client.stage(op)
        self._newest = max(self._newest, outcome.revision)
        return outcome

    def _require_kept(self) -> None:
        if self._epoch != self._client.rollbacks:
            raise InternalError("the writes before were rolled back")
