"""Delivery channels of notifications: webhook, command, mail."""

from typing import Protocol

from onejob.clock import Clock
from onejob.controllers.notify.config import Target
from onejob.planning.notify.messages import Message


class NotDelivered(Exception):
    """A delivery attempt failed; the message, one line, is the reason."""


class Channel(Protocol):
    async def send(self, message: Message) -> None:
        """Deliver a message.

        Raises NotDelivered, within the time that the target's configuration allows.
        """

    async def close(self) -> None: ...


def channel_to(target: Target, clock: Clock) -> Channel:
    """Return the channel of a target. Raises BadNotifyConfig."""
    if target.webhook is not None:
        from onejob.controllers.notify.webhook import WebhookChannel

        return WebhookChannel(target.webhook, clock)
    if target.command is not None:
        from onejob.controllers.notify.command import CommandChannel

        return CommandChannel(target.command)
    from onejob.controllers.notify.mail import MailChannel

    assert target.email is not None
    return MailChannel(target.email)
