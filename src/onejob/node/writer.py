"""All writes of the agent, batched as they come: while one batch is under way the next gathers.

Writes of one batch must be independent, so whoever submits a write for an object waits for its
answer before submitting the next.
"""

import asyncio
import logging
from collections.abc import Callable

from onejob.api.errors import ApiError
from onejob.client.base import Client, Op, Result

log = logging.getLogger(__name__)

Answer = Callable[[Result], None]

_MOST_AT_ONCE = 1000
#: Answers handled before others on the event loop get their turn.
_ANSWERS_PER_TURN = 100
_FIRST_RETRY, _LONGEST_RETRY = 0.1, 5.0


class Writer:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._pending: list[tuple[Op, Answer]] = []
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def submit(self, op: Op, answer: Answer) -> None:
        self._pending.append((op, answer))
        self._idle.clear()
        self._wake.set()

    async def settled(self) -> None:
        """Wait until everything submitted, also by the answers, is written."""
        await self._idle.wait()

    async def run(self) -> None:
        """Write until cancelled. An API that does not answer is asked again, in order."""
        failures = 0
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._pending:
                batch = self._pending[:_MOST_AT_ONCE]
                try:
                    results = await self._client.write_many([op for op, _ in batch])
                except (ApiError, OSError) as error:
                    delay = min(_FIRST_RETRY * 2**failures, _LONGEST_RETRY)
                    failures += 1
                    log.warning("the API does not answer, trying again: %s", error)
                    await asyncio.sleep(delay)
                    continue
                failures = 0
                del self._pending[: len(batch)]
                for first in range(0, len(batch), _ANSWERS_PER_TURN):
                    if first:
                        await asyncio.sleep(0)
                    last = first + _ANSWERS_PER_TURN
                    for (_, answer), result in zip(
                        batch[first:last], results[first:last], strict=True
                    ):
                        answer(result)
            self._idle.set()
