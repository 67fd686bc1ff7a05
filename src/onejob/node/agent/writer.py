"""Batched API writes of the agent: the next batch accumulates while one is in progress.

Writes of one object are attempted in the order of submission. A caller whose write depends on the
success of another has to wait for that answer. Batches are small and are filled round-robin over
owners, so that the single Pod of a small Job does not wait for the thousand Pods of a large one.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeAlias

from onejob.client.base import Bind, Client, Delete, Patch, Result
from onejob.objects.meta import Meta
from onejob.wire.errors import CALL_FAILURES, ApiError, Forbidden, TooManyRequests, Unauthorized

log = logging.getLogger(__name__)

#: The agent's writes to Pods; it creates none.
Change: TypeAlias = Bind | Patch | Delete
Answer = Callable[[Result], None]
#: Produces the operation when the write is staged; None if there is no longer anything to write.
Newest = Callable[[], Change | None]
_Asked: TypeAlias = tuple[Newest, Answer]

_MAX_BATCH_SIZE = 200
#: Most writes taken per owner before the next owner's turn.
_OF_ONE_OWNER = 16
#: Answers processed between two yields to the event loop.
_ANSWERS_PER_TURN = 100
_MIN_RETRY_SECONDS, _MAX_RETRY_SECONDS = 0.1, 5.0


class Writer:
    """Write queue of the agent to the API, for bindings, status patches and deletions of Pods.

    Guarantees: writes of one Pod are attempted in the order of submission. Batches are retried with
    back-off while the API is unreachable. `answer` is called once with the result or error of its
    write, or not at all if the write became unnecessary. A Delete is retried while the server fails
    or denies access.

    `run` must be running for any progress.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        #: Queued writes by the UID of their owner; the owner whose turn it is comes first.
        self._waiting: dict[str, deque[_Asked]] = {}
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def submit(self, op: Change, answer: Answer, of: Meta) -> None:
        """Queue a write. `of` is the metadata of the Pod that is written."""
        self.submit_newest(lambda: op, answer, of)

    def submit_newest(self, newest: Newest, answer: Answer, of: Meta) -> None:
        """Queue a write whose operation `newest` produces at staging time, so that it can be
        superseded while queued. `answer` is not called if `newest` returns None."""
        self._submit(of.owner_references[0].uid if of.owner_references else of.uid, newest, answer)

    def _submit(self, owner: str, newest: Newest, answer: Answer) -> None:
        """Queue a write; `newest` makes it when its batch begins, `answer` receives the result."""
        waiting = self._waiting.get(owner)
        if waiting is None:
            if not self._waiting:
                self._idle.clear()
                self._wake.set()
            waiting = self._waiting[owner] = deque()
        waiting.append((newest, answer))

    def _retry_deletion(self, op: Delete, answer: Answer) -> None:
        log.warning("%s: cannot delete, retrying", op.key)
        loop = asyncio.get_running_loop()
        loop.call_later(_MAX_RETRY_SECONDS, self._submit, op.uid, lambda: op, answer)

    async def settled(self) -> None:
        """Wait until all submitted writes, including follow-ups submitted by answers, are done."""
        await self._idle.wait()

    async def run(self) -> None:
        """Write batches until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                # Follow-ups of the last answers mostly arrive one loop iteration later and share
                # the commit.
                await asyncio.sleep(0)
                batch = self._take_batch()
                results = await self._write([op for op, _ in batch])
                for number, ((op, answer), result) in enumerate(zip(batch, results, strict=True)):
                    if type(op) is Delete and _failed(result):
                        # Only this node completes a Pod's deletion, and no later event would
                        # trigger a retry.
                        self._retry_deletion(op, answer)
                    else:
                        answer(result)
                    if number % _ANSWERS_PER_TURN == _ANSWERS_PER_TURN - 1:
                        await asyncio.sleep(0)
            self._idle.set()

    def _take_batch(self) -> list[tuple[Change, Answer]]:
        """Remove and return the writes of the next batch, in turn by owner."""
        batch: list[tuple[Change, Answer]] = []
        while self._waiting and len(batch) < _MAX_BATCH_SIZE:
            owner = next(iter(self._waiting))
            waiting = self._waiting.pop(owner)
            share = min(len(waiting), _OF_ONE_OWNER)
            for _ in range(share):
                newest, answer = waiting.popleft()
                op = newest()
                if op is not None:
                    batch.append((op, answer))
            if waiting:
                self._waiting[owner] = waiting
        return batch

    async def _write(self, ops: Sequence[Change]) -> Sequence[Result]:
        """Write a batch; retry with back-off while the API is unreachable."""
        results = await self._write_once(ops)
        if results is not None:
            return results
        # The batch may have been applied: a retry must not repeat an operation that a later one on
        # the same object superseded.
        last = {op.key: op for op in ops}
        delay = _MIN_RETRY_SECONDS
        while results is None:
            await asyncio.sleep(delay)
            delay = min(delay * 2, _MAX_RETRY_SECONDS)
            results = await self._write_once(list(last.values()))
        answers = dict(zip(last, results, strict=True))
        return [answers[op.key] for op in ops]

    async def _write_once(self, ops: Sequence[Change]) -> Sequence[Result] | None:
        """Return the results of a batch; None if the API does not respond."""
        try:
            return await self._client.write_many(ops)
        except CALL_FAILURES as error:
            log.warning("the API does not respond, retrying: %s", error)
            return None


def _failed(result: Result) -> bool:
    """Return whether a deletion should be retried: the server failed or refuses for now, as
    permissions may be restored. Other refusals are final."""
    if not isinstance(result, ApiError):
        return False
    return result.code >= 500 or isinstance(result, Unauthorized | Forbidden | TooManyRequests)
