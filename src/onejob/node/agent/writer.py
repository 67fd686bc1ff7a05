"""All writes of the agent, batched as they come: while one batch is under way the next gathers.

Writes of one object are tried in the order in which they were submitted. Whoever wants a write only
if the one before it succeeds waits for the answer to that. Batches are small and take from all
owners in turn: the one Pod of a small Job need not wait for the thousand of a giant one.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeAlias

from onejob.client.base import Bind, Client, Delete, Patch, Result
from onejob.objects.meta import Meta
from onejob.wire.errors import ApiError, Forbidden, TooManyRequests, Unauthorized

log = logging.getLogger(__name__)

#: What the agent does to Pods: it creates none.
Change: TypeAlias = Bind | Patch | Delete
Answer = Callable[[Result], None]
#: What to write when the time has come; None if there is nothing to write any more.
Newest = Callable[[], Change | None]
_Asked: TypeAlias = tuple[Newest, Answer]

_MOST_AT_ONCE = 200
#: How many writes of one owner are taken before the next has its turn.
_OF_ONE_OWNER = 16
#: Answers handled before others on the event loop get their turn.
_ANSWERS_PER_TURN = 100
_FIRST_RETRY, _LONGEST_RETRY = 0.1, 5.0


class Writer:
    def __init__(self, client: Client) -> None:
        self._client = client
        #: What waits, by the UID of its owner; whose turn it is comes first.
        self._waiting: dict[str, deque[_Asked]] = {}
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def submit(self, op: Change, answer: Answer, of: Meta) -> None:
        """`of` is the Pod that is written."""
        self.submit_newest(lambda: op, answer, of)

    def submit_newest(self, newest: Newest, answer: Answer, of: Meta) -> None:
        """What is to be written is asked for when the write is staged: as long as it waits for
        others, it may be replaced. There is no answer if there was nothing to write."""
        self._submit(of.owner_references[0].uid if of.owner_references else of.uid, newest, answer)

    def _submit(self, owner: str, newest: Newest, answer: Answer) -> None:
        waiting = self._waiting.get(owner)
        if waiting is None:
            if not self._waiting:
                self._idle.clear()
                self._wake.set()
            waiting = self._waiting[owner] = deque()
        waiting.append((newest, answer))

    def _submit_later(self, op: Delete, answer: Answer) -> None:
        log.warning("%s: cannot be deleted, trying again", op.key)
        loop = asyncio.get_running_loop()
        loop.call_later(_LONGEST_RETRY, self._submit, op.uid, lambda: op, answer)

    async def settled(self) -> None:
        """Wait until everything submitted, also by the answers, is written."""
        await self._idle.wait()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                # What the last answers led to is mostly one turn away, and shares the commit.
                await asyncio.sleep(0)
                batch = self._take()
                results = await self._write([op for op, _ in batch])
                for number, ((op, answer), result) in enumerate(zip(batch, results, strict=True)):
                    if isinstance(op, Delete) and _failed(result):
                        # Only we delete a Pod for good, and there is no later occasion.
                        self._submit_later(op, answer)
                    else:
                        answer(result)
                    if number % _ANSWERS_PER_TURN == _ANSWERS_PER_TURN - 1:
                        await asyncio.sleep(0)
            self._idle.set()

    def _take(self) -> list[tuple[Change, Answer]]:
        batch: list[tuple[Change, Answer]] = []
        while self._waiting and len(batch) < _MOST_AT_ONCE:
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
        """An API that does not answer is asked again."""
        results = await self._try(ops)
        if results is not None:
            return results
        # Perhaps all was written: what is not the last word on an object must not follow that.
        last = {op.key: op for op in ops}
        delay = _FIRST_RETRY
        while results is None:
            await asyncio.sleep(delay)
            delay = min(delay * 2, _LONGEST_RETRY)
            results = await self._try(list(last.values()))
        answers = dict(zip(last, results, strict=True))
        return [answers[op.key] for op in ops]

    async def _try(self, ops: Sequence[Change]) -> Sequence[Result] | None:
        try:
            return await self._client.write_many(ops)
        except (ApiError, OSError) as error:
            log.warning("the API does not answer, trying again: %s", error)
            return None


def _failed(result: Result) -> bool:
    """The server itself failed, or refuses for now: rights may be given back. Other refusals are
    final."""
    if not isinstance(result, ApiError):
        return False
    return result.code >= 500 or isinstance(result, Unauthorized | Forbidden | TooManyRequests)
