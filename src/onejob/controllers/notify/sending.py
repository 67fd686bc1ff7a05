"""Message delivery with one queue per target, so that an unresponsive target delays no other."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Final

from msgspec import Struct, field

from onejob.clock import Clock
from onejob.controllers.notify.delivery import Channel, NotDelivered
from onejob.informers.workqueue import ReportedRetry, WorkQueue, work
from onejob.metrics import Metrics, Target
from onejob.planning.notify.messages import Message, is_too_old, to_give_up

log = logging.getLogger(__name__)

_WORKERS: Final = 4
_FIRST_DELAY: Final = 1.0
_MAX_DELAY_SECONDS: Final = 300.0


class _TargetQueue(Struct):
    """Queue of one target."""

    channel: Channel
    queue: WorkQueue[str] = field(
        default_factory=lambda: WorkQueue(
            first_delay=_FIRST_DELAY, longest_delay=_MAX_DELAY_SECONDS
        )
    )
    messages: dict[str, Message] = field(default_factory=dict)
    #: Whether the last attempt failed.
    failing: bool = False


class Sender:
    """Delivery queues of notifications, one per target.

    Guarantees: `add` never waits. A message is retried with back-off until it is delivered, too
    old, or dropped beyond `limit`; `remove` is called only then, or if its target does not exist. A
    message may be delivered more than once, and messages of one target may overtake each other.
    """

    def __init__(
        self,
        channels: Mapping[str, Channel],
        *,
        remove: Callable[[str], None],
        gave_up: Callable[[Message, str], None],
        give_up_after: timedelta,
        limit: int,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        """Create the queues of all targets.

        `remove` is called with the id of each message that need not be stored any longer, `gave_up`
        with each message that was never delivered.
        """
        self._lines = {name: _TargetQueue(channel) for name, channel in channels.items()}
        self._remove = remove
        self._gave_up = gave_up
        self._give_up_after = give_up_after
        self._limit = limit
        self._clock = clock
        self._metrics = metrics
        metrics.notifications_waiting.read_each(
            lambda: {Target(target=name): len(line.messages) for name, line in self._lines.items()}
        )

    def add(self, message: Message) -> None:
        """Queue a message without waiting.

        It is dropped beyond the limit, or if its target no longer exists.
        """
        line = self._lines.get(message.target)
        if line is None:
            self._drop(message, "its target is no longer configured")
        elif message.id in line.messages:
            return
        elif self._make_room(message):
            line.messages[message.id] = message
            line.queue.add(message.id)

    def _make_room(self, message: Message) -> bool:
        """Drop a message if the queues are full. Return False if the new one was dropped."""
        lines = self._lines.values()
        if sum(len(line.messages) for line in lines) < self._limit:
            return True
        waiting = [one for line in lines for one in line.messages.values()]
        given_up = to_give_up(waiting, message)
        if given_up is not message:
            line = self._lines[given_up.target]
            del line.messages[given_up.id]
            line.queue.drop(given_up.id)
        self._drop(given_up, f"the queue is full ({self._limit} messages)")
        return given_up is not message

    async def run(self) -> None:
        """Deliver the queued messages until cancelled, then close all queues and channels."""
        try:
            async with asyncio.TaskGroup() as group:
                for name, line in self._lines.items():
                    group.create_task(
                        work(
                            line.queue,
                            lambda message_id, name=name: self._deliver(name, message_id),  # type: ignore[misc]
                            workers=_WORKERS,
                            name=f"notify {name}",
                        )
                    )
        finally:
            for line in self._lines.values():
                line.queue.close()
                await line.channel.close()

    async def _deliver(self, target: str, message_id: str) -> None:
        """Send one message of a target, or drop it if it is too old.

        Does nothing if it was dropped meanwhile. Raises ReportedRetry if the target did not accept
        it.
        """
        line = self._lines[target]
        message = line.messages.get(message_id)
        if message is None:
            return
        if is_too_old(message, self._clock.now(), self._give_up_after):
            del line.messages[message_id]
            line.queue.drop(message_id)
            self._drop(message, "delivery timed out")
            return
        try:
            await line.channel.send(message)
        except NotDelivered as error:
            self._record_failure(target, line, message, str(error))
            raise ReportedRetry(str(error)) from None
        if line.failing:
            line.failing = False
            log.warning("notify: target %s accepts messages again", target)
        # It may have been dropped in favour of another message while it was being sent.
        line.messages.pop(message_id, None)
        self._remove(message_id)
        self._metrics.notifications.inc(target=target, result="sent")

    def _record_failure(
        self, target: str, line: _TargetQueue, message: Message, error: str
    ) -> None:
        """Count a failed attempt; log only the first of consecutive failures of a target."""
        self._metrics.notifications.inc(target=target, result="failed")
        if not line.failing:
            # Logged once: a target that is down for a night must not fill the log.
            line.failing = True
            what = f"{message.namespace}/{message.name}"
            log.warning("notify: target %s, message about %s: %s; retrying", target, what, error)

    def _drop(self, message: Message, why: str) -> None:
        """Report a message that will never be delivered, and have it removed from storage.

        The caller removes it from its queue.
        """
        self._remove(message.id)
        self._metrics.notifications.inc(target=message.target, result="dropped")
        self._gave_up(message, why)
