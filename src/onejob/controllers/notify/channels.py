"""Delivery channels of notifications: commands here, webhooks and mail in modules loaded on use."""

import asyncio
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from contextlib import suppress
from typing import Final

from onejob.clock import Clock
from onejob.controllers.notify.config import Command, Target
from onejob.controllers.notify.delivery import Channel, NotDelivered
from onejob.planning.notify.messages import Message, encode_message

_MAX_ERROR_LENGTH: Final = 300
#: Environment variables passed on to the command: none that could contain a secret.
_PASSED_ON: Final = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR")


def channel_to(target: Target, clock: Clock) -> Channel:
    """Return the channel of a target. Raises BadNotifyConfig."""
    if target.webhook is not None:
        from onejob.controllers.notify.webhook import WebhookChannel

        return WebhookChannel(target.webhook, clock)
    if target.command is not None:
        return CommandChannel(target.command)
    from onejob.controllers.notify.mail import MailChannel

    assert target.email is not None
    return MailChannel(target.email)


class CommandChannel:
    """Messages on the standard input of a command.

    No part of a message is on the command line, and no shell is involved.
    """

    def __init__(self, command: Command) -> None:
        self._argv = command.argv
        self._seconds = command.timeout_seconds

    async def send(self, message: Message) -> None:
        passed_on = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        try:
            process = await asyncio.create_subprocess_exec(
                *self._argv,
                stdin=PIPE,
                stdout=DEVNULL,
                stderr=PIPE,
                env={**passed_on, "ONEJOB_EVENT": message.event, "ONEJOB_MESSAGE_ID": message.id},
                # Signals to the server's process group must not reach it, and ours must reach its
                # children.
                start_new_session=True,
            )
        except OSError as error:
            raise NotDelivered(f"cannot run {self._argv[0]}: {error.strerror}") from None
        try:
            async with asyncio.timeout(self._seconds):
                _, complaint = await process.communicate(encode_message(message) + b"\n")
        except TimeoutError:
            raise NotDelivered(f"{self._argv[0]} timed out after {self._seconds:g} s") from None
        finally:
            await _end(process)
        if process.returncode != 0:
            last = complaint.decode("utf-8", "replace").strip()[-_MAX_ERROR_LENGTH:]
            raise NotDelivered(f"{self._argv[0]} exited with code {process.returncode}: {last}")

    async def close(self) -> None:
        return None


async def _end(process: Process) -> None:
    """Kill the command and all processes in its session."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
