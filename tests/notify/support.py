"""Objects with notification annotations, and real receivers."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import Queue
from typing import Any

import msgspec
import pytest

from onejob.client.base import Create
from onejob.controllers.notify.config import NotifyConfig, load_config
from onejob.controllers.notify.delivery import NotDelivered
from onejob.node.simulated import DURATION, EXIT_CODE
from onejob.planning.notify.messages import Message
from tests import build
from tests.posts import posts_to

NOTIFY = "onejob.dev/notify"
NOTIFY_ON = "onejob.dev/notify-on"
LATE_AFTER = "onejob.dev/late-after-seconds"


def a_template(*, seconds: float, exit_code: str) -> dict[str, Any]:
    annotations = {DURATION: str(seconds), EXIT_CODE: exit_code}
    return build.template(metadata={"annotations": annotations})


def a_job(
    name: str,
    annotations: dict[str, str],
    *,
    seconds: float = 1,
    exit_code: str = "0",
    **spec: Any,
) -> Create:
    template = a_template(seconds=seconds, exit_code=exit_code)
    metadata = {"namespace": "default", "annotations": annotations}
    fields = {"backoffLimit": 0, "template": template, **spec}
    return build.creation(build.a_job(name, metadata=metadata, **fields))


def a_cronjob(
    name: str,
    annotations: dict[str, str],
    *,
    schedule: str,
    exit_code: str = "0",
    **spec: Any,
) -> Create:
    job = {"backoffLimit": 0, "template": a_template(seconds=1, exit_code=exit_code)}
    metadata = {"namespace": "default", "annotations": annotations}
    return build.creation(build.a_cronjob(name, schedule, metadata=metadata, job=job, **spec))


def a_config(folder: Path, *targets: dict[str, Any], **settings: Any) -> NotifyConfig:
    """Return a config read from a file, as servers do."""
    path = folder / "notify.yaml"
    path.write_bytes(msgspec.json.encode({"targets": targets, **settings}))
    return load_config(path)


class Inbox:
    """Channel that keeps messages; it refuses the first `refusals` of them."""

    def __init__(self, *, refusals: int = 0) -> None:
        self.messages: list[Message] = []
        self.attempts = 0
        self.refusals = refusals

    async def send(self, message: Message) -> None:
        self.attempts += 1
        if self.attempts <= self.refusals:
            raise NotDelivered("not now")
        self.messages.append(message)

    async def close(self) -> None:
        return None

    @property
    def said(self) -> list[tuple[str, str]]:
        return [(message.event, message.name) for message in self.messages]


def deliver_to(inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this the channel of every target of servers that start from now on."""
    module = "onejob.controllers.notify.controller.channel_to"
    monkeypatch.setattr(module, lambda target, clock: inbox)


@dataclass
class Received:
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Receiver:
    """Requests to a webhook's server, and its responses."""

    url: str = ""
    received: "Queue[Received]" = field(default_factory=Queue)
    codes: list[int] = field(default_factory=list)
    #: While it is clear, no request is answered.
    answering: threading.Event = field(default_factory=threading.Event)


@contextmanager
def a_receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    receiver.answering.set()

    def receive(path: str, headers: Mapping[str, str], body: bytes) -> int:
        receiver.received.put(Received(path, dict(headers), body))
        receiver.answering.wait(30)
        return receiver.codes.pop(0) if receiver.codes else 200

    with posts_to(receive) as receiver.url:
        try:
            yield receiver
        finally:
            receiver.answering.set()
