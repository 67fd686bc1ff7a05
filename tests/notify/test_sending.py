"""Queues of targets that do not respond, and the order of dropped messages."""

import asyncio
from datetime import timedelta

import pytest

from onejob.controllers.notify.sending import Sender
from onejob.metrics import Metrics
from onejob.planning.notify.messages import Message, to_give_up
from onejob.virtual_time import NOON, virtual_clock
from tests.notify.support import Inbox

pytestmark = pytest.mark.virtual_time


def a_message(namespace: str, number: int, target: str = "ops") -> Message:
    name = f"{namespace}-{number}"
    return Message(name, "failed", target, NOON, "it failed", namespace=namespace, name=name)


@pytest.mark.parametrize(
    ("waiting", "new", "given_up"),
    [
        ("aaa", "b", "a-2"),
        ("aaa", "a", "a-3"),
        ("aab", "b", "b-3"),
        ("aabb", "c", "b-3"),
        ("abc", "d", "d-3"),
        ("baaab", "b", "b-5"),
        ("baaa", "b", "a-3"),
    ],
)
def test_longest_queue_drops_message_when_full(waiting: str, new: str, given_up: str) -> None:
    messages = [a_message(namespace, number) for number, namespace in enumerate(waiting)]
    assert to_give_up(messages, a_message(new, len(waiting))).id == given_up


async def test_a_flood_of_one_namespace_costs_others_no_message() -> None:
    removed: list[str] = []
    lost: list[str] = []
    inbox = Inbox()
    sender = Sender(
        {"ops": inbox, "mail": inbox},
        remove=removed.append,
        gave_up=lambda message, why: lost.append(message.id),
        give_up_after=timedelta(days=1),
        limit=100,
        clock=virtual_clock(),
        metrics=Metrics(),
    )
    for number in range(1000):
        sender.add(a_message("mallory", number))
    for number in range(20):
        sender.add(a_message("alice", number, "mail"))
    task = asyncio.create_task(sender.run())
    await asyncio.sleep(10)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    delivered = {message.id for message in inbox.messages}
    assert {f"alice-{number}" for number in range(20)} <= delivered
    assert len(delivered) == 100
    assert not [name for name in lost if name.startswith("alice")]
    assert len(lost) == 920
    # Dropped messages are not kept on disk either.
    assert set(lost) | delivered == set(removed)
