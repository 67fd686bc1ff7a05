"""Write pipelining: several dependent writes of one caller in one commit.

The store commits in the order in which writes are staged, so a later write is never on disk without
the earlier ones, and readers see none of them before. In the server's process the writes of a
series are therefore staged without waiting in between, and share one commit instead of taking one
each. Only for callers whose effects are all writes: no other effect may follow before `durable`
returns.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from onejob.client.base import Client, Op, Result, Written
from onejob.client.local import stage_all
from onejob.wire.errors import ApiError, InternalError


class WriteSeries(Protocol):
    """Sequence of dependent writes that ends with `durable`.

    Each write may be decided on the results of the earlier ones.
    """

    @property
    def shares_commit(self) -> bool:
        """Whether writes without an await in between are committed together or not at all."""

    async def write(self, op: Op) -> Written:
        """Execute a write, which later ones of the series may depend on. Raises ApiError."""

    async def write_many(self, ops: Sequence[Op]) -> Sequence[Result]: ...

    async def durable(self) -> None:
        """Wait until all writes of the series are on disk.

        Raises ApiError if they were rolled back.
        """


class DurableWrites:
    """Write series on any client: each write is on disk before the next is decided."""

    shares_commit = False

    def __init__(self, client: Client) -> None:
        self.write = client.write
        self.write_many = client.write_many

    async def durable(self) -> None:
        """Return at once: each write was durable when its result was returned."""


class StagingClient(Protocol):
    """Client in the server's process, which can stage writes before they are durable."""

    @property
    def rollbacks(self) -> int: ...

    @property
    def pending_revision(self) -> int: ...

    @property
    def durable(self) -> Callable[[int], Awaitable[None]]: ...

    def stage_many(self, ops: Sequence[Op]) -> Sequence[Result]: ...


class StagedWrites:
    """Write series on a client in the server's process: writes are staged and committed together.

    If the store has to roll back a commit, further writes of the series fail with InternalError:
    they were decided on writes that no longer exist.
    """

    shares_commit = True

    def __init__(self, client: StagingClient) -> None:
        self._client = client
        self._epoch = client.rollbacks
        self._newest = 0

    async def write(self, op: Op) -> Written:
        (result,) = self._stage_many((op,))
        if isinstance(result, ApiError):
            raise result
        return result

    async def write_many(self, ops: Sequence[Op]) -> Sequence[Result]:
        return await stage_all(ops, self._stage_many)

    async def durable(self) -> None:
        self._require_kept()
        await self._client.durable(self._newest)

    def _stage_many(self, ops: Sequence[Op]) -> Sequence[Result]:
        """Stage the writes and return their results; all fail if earlier ones were rolled back."""
        if self._epoch != self._client.rollbacks:
            error = _rolled_back()
            return [error] * len(ops)
        results = self._client.stage_many(ops)
        for result in results:
            if type(result) is Written:
                if result.revision > self._newest:
                    self._newest = result.revision
            else:
                # The refusal may be based on a write that another client has staged: `durable` must
                # wait for that write, too.
                self._newest = max(self._newest, self._client.pending_revision)
        return results

    def _require_kept(self) -> None:
        if self._epoch != self._client.rollbacks:
            raise _rolled_back()


def _rolled_back() -> InternalError:
    return InternalError("earlier writes of the series were rolled back")
