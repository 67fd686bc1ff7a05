"""The ways a message leaves: a webhook, a command, a mail."""

from typing import Protocol

from onejob.clock import Clock
from onejob.controllers.notify.config import Target
from onejob.planning.notify.messages import Message


class NotDelivered(Exception):
    """This attempt failed; the message, one line, says why."""


class Channel(Protocol):
    async def send(self, message: Message) -> None:
        """Raises NotDelivered, within the time that the target's configuration allows."""

    async def close(self) -> None: ...


def channel_to(target: Target, clock: Clock) -> Channel:
    """Raises BadNotifyConfig."""
    if target.webhook is not None:
        from onejob.controllers.notify.webhook import WebhookChannel

        return WebhookChannel(target.webhook, clock)
    if target.command is not None:
        from onejob.controllers.notify.command import CommandChannel

        return CommandChannel(target.command)
    from onejob.controllers.notify.mail import MailChannel

    assert target.email is not None
    return MailChannel(target.email)
