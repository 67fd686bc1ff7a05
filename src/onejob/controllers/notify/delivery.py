"""Interface of delivery channels."""

from typing import Protocol

from onejob.planning.notify.messages import Message


class NotDelivered(Exception):
    """A delivery attempt failed; the message, one line, is the reason."""


class Channel(Protocol):
    """Connection to one target."""

    async def send(self, message: Message) -> None:
        """Deliver a message.

        Raises NotDelivered, within the time that the target's configuration allows.
        """

    async def close(self) -> None:
        """Release the channel's resources; nothing is sent afterwards."""
