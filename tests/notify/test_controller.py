"""Notification controller: recipients, events and times, on a control plane in virtual time."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from onejob.client.base import Delete, Patch, Selection
from onejob.control_plane import ControlPlane
from onejob.controllers.notify.config import NotifyConfig
from onejob.controllers.notify.outbox import FILE, OutboxFile
from onejob.objects.meta import CRONJOBS, EVENTS, JOBS, Key
from onejob.virtual_time import NOON
from tests.notify.support import (
    LATE_AFTER,
    NOTIFY,
    NOTIFY_ON,
    Inbox,
    a_config,
    a_cronjob,
    a_job,
    deliver_to,
)
from tests.queue.support import a_plane

pytestmark = pytest.mark.virtual_time

COMMAND = {"argv": ["/bin/true"]}
Start = Callable[[], AbstractAsyncContextManager[ControlPlane]]


@pytest.fixture
def inbox(monkeypatch: pytest.MonkeyPatch) -> Inbox:
    inbox = Inbox()
    deliver_to(inbox, monkeypatch)
    return inbox


@pytest.fixture
def config(tmp_path: Path) -> NotifyConfig:
    return a_config(
        tmp_path,
        {"name": "ops", "command": COMMAND},
        {"name": "all", "command": COMMAND, "on": ["failed", "finished"]},
    )


@pytest.fixture
def start(tmp_path: Path, config: NotifyConfig) -> Start:
    return lambda: a_plane(tmp_path / "data", notify=config)


async def warnings(plane: ControlPlane) -> list[tuple[str, str]]:
    await asyncio.sleep(1)
    listing = await plane.client.list(Selection(EVENTS))
    found = [msgspec.json.decode(document) for document in listing.documents]
    return [(one["reason"], one["message"]) for one in found if one["type"] == "Warning"]


async def test_target_gets_subscribed_events_of_job_end(start: Start, inbox: Inbox) -> None:
    async with start() as plane:
        for op in (
            a_job("good", {NOTIFY: "ops"}),
            a_job("bad", {NOTIFY: "ops"}, exit_code="3"),
            a_job("both", {NOTIFY: "ops,all"}),
            a_job("chosen", {NOTIFY: "ops", NOTIFY_ON: "finished"}, exit_code="3"),
            a_job("quiet", {}, exit_code="3"),
        ):
            await plane.client.write(op)
        await asyncio.sleep(60)
    assert sorted(inbox.said) == [("failed", "bad"), ("finished", "both"), ("finished", "chosen")]
    [bad] = [message for message in inbox.messages if message.name == "bad"]
    assert (bad.target, bad.reason, bad.failed) == ("ops", "BackoffLimitExceeded", 1)
    assert bad.text.startswith("job/bad in default failed (BackoffLimitExceeded): Job has reached")
    [both] = [message for message in inbox.messages if message.name == "both"]
    assert (both.target, both.text) == ("all", "job/both in default succeeded")


async def test_a_cronjob_and_a_namespace_speak_for_their_jobs(start: Start, inbox: Inbox) -> None:
    """A success after failures is worth a message, the next one is not."""
    async with start() as plane:
        await plane.client.write(
            a_cronjob("nightly", {NOTIFY: "ops"}, schedule="* * * * *", exit_code="1")
        )
        await asyncio.sleep(150)
        assert inbox.said == [("failed", name) for _, name in inbox.said]
        assert len(inbox.said) == 2
        key = Key(CRONJOBS, "default", "nightly")
        healthy = a_cronjob("nightly", {}, schedule="* * * * *")
        template = msgspec.json.decode(healthy.document)["spec"]["jobTemplate"]
        body = {"spec": {"jobTemplate": template}}
        await plane.client.write(Patch(key, msgspec.json.encode(body), "merge"))
        await asyncio.sleep(120)
        assert [event for event, _ in inbox.said] == ["failed", "failed", "recovered"]
        assert inbox.messages[-1].cronjob == "nightly"
        body = {"metadata": {"annotations": {NOTIFY: "all"}}}
        namespace = Key("namespaces", "", "default")
        await plane.client.write(Patch(namespace, msgspec.json.encode(body), "merge"))
        await plane.client.write(a_job("plain", {}))
        await plane.client.write(a_job("left-out", {NOTIFY: ""}))
        await asyncio.sleep(60)
        assert inbox.said[3:] == [("finished", "plain")]


async def test_late_jobs_and_cronjobs(start: Start, inbox: Inbox) -> None:
    async with start() as plane:
        late = {NOTIFY: "ops", LATE_AFTER: "60"}
        await plane.client.write(a_job("slow", late, seconds=100))
        await plane.client.write(a_job("quick", late, seconds=50))
        cronjob = a_cronjob("minutely", late, schedule="* * * * *", exit_code="1")
        await plane.client.write(cronjob)
        suspended = a_cronjob("off", late, schedule="* * * * *", suspend=True)
        await plane.client.write(suspended)
        await asyncio.sleep(200)
    said = [(event, name) for event, name in inbox.said if event == "late"]
    # Once since its last success, however many of its Jobs fail afterwards.
    assert said == [("late", "slow"), ("late", "minutely")]
    [slow, minutely] = [message for message in inbox.messages if message.event == "late"]
    assert (slow.at - NOON).total_seconds() == pytest.approx(60, abs=2)
    assert minutely.text.endswith("no Job has succeeded since 2026-01-01T12:01:00Z")


async def test_bad_annotations_become_events_at_once(start: Start, inbox: Inbox) -> None:
    async with start() as plane:
        await plane.client.write(a_job("a", {NOTIFY: "nobody"}, seconds=1000))
        await plane.client.write(a_job("b", {NOTIFY: "ops\nX: y"}, seconds=1000))
        await plane.client.write(a_cronjob("c", {NOTIFY_ON: "never"}, schedule="0 0 1 1 *"))
        found = sorted(await warnings(plane))
        assert [reason for reason, _ in found] == ["BadNotifyAnnotation"] * 3
        assert [text for _, text in found] == [
            "onejob.dev/notify-on: 'never' is not one of failed, finished, late, recovered",
            r"onejob.dev/notify: 'ops\nX: y' is not a valid target name",
            "onejob.dev/notify: unknown target nobody; this server has all, ops",
        ]


async def test_restarts_lose_and_repeat_no_notification(start: Start, inbox: Inbox) -> None:
    """A target that refuses gets its messages later, also from the next server.

    Jobs that ended while the server was down, or were deleted since, are not forgotten.
    """
    inbox.refusals = 10**9
    async with start() as plane:
        await plane.client.write(a_job("deleted", {NOTIFY: "ops"}, exit_code="1"))
        await plane.client.write(a_job("kept", {NOTIFY: "ops"}, exit_code="1"))
        await asyncio.sleep(30)
        await plane.client.write(Delete(Key(JOBS, "default", "deleted"), "Background"))
        await asyncio.sleep(30)
    assert inbox.said == []
    assert inbox.attempts >= 8
    inbox.refusals = 0
    async with start() as plane:
        await asyncio.sleep(1)
        assert sorted(inbox.said) == [("failed", "deleted"), ("failed", "kept")]
    async with start() as plane:
        await asyncio.sleep(60)
    assert len(inbox.said) == 2


async def test_the_same_message_keeps_its_id(start: Start, inbox: Inbox, tmp_path: Path) -> None:
    """The server was killed after the delivery and before that was recorded: it sends it again."""
    async with start() as plane:
        await plane.client.write(a_job("bad", {NOTIFY: "ops"}, exit_code="1"))
        await asyncio.sleep(30)
    first = inbox.messages[0].id
    (tmp_path / "data" / FILE).unlink()
    OutboxFile(tmp_path / "data" / FILE, NOON).close()
    async with start():
        await asyncio.sleep(30)
    assert [message.id for message in inbox.messages] == [first, first]


async def test_jobs_ended_before_subscription_are_not_notified(
    tmp_path: Path, config: NotifyConfig, inbox: Inbox
) -> None:
    async with a_plane(tmp_path / "data") as plane:
        await plane.client.write(a_job("bad", {NOTIFY: "ops"}, exit_code="1"))
        await asyncio.sleep(30)
    assert not (tmp_path / "data" / FILE).exists()
    async with a_plane(tmp_path / "data", notify=config):
        await asyncio.sleep(30)
    assert inbox.said == []


async def test_a_damaged_outbox_is_put_aside(start: Start, inbox: Inbox, tmp_path: Path) -> None:
    file = tmp_path / "data" / FILE
    async with start():
        await asyncio.sleep(1)
    file.write_bytes(b"no database" * 1000)
    async with start() as plane:
        await plane.client.write(a_job("bad", {NOTIFY: "ops"}, exit_code="1"))
        await asyncio.sleep(30)
    assert inbox.said == [("failed", "bad")]
    assert file.with_name(f"{FILE}.damaged").read_bytes().startswith(b"no database")


async def test_a_full_disk_delays_no_message_and_no_job(
    start: Start, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, full = OutboxFile.commit, True

    def refuse(self: OutboxFile, *what: Any) -> None:
        if full:
            raise apsw.FullError("database or disk is full")
        commit(self, *what)

    monkeypatch.setattr(OutboxFile, "commit", refuse)
    async with start() as plane:
        await plane.client.write(a_job("bad", {NOTIFY: "ops"}, exit_code="1"))
        await asyncio.sleep(20)
        assert inbox.said == [("failed", "bad")]
        full = False
        await asyncio.sleep(20)
    async with start():
        await asyncio.sleep(20)
    assert len(inbox.said) == 1


async def test_undeliverable_notification_is_dropped_with_event(
    tmp_path: Path, inbox: Inbox
) -> None:
    config = a_config(
        tmp_path, {"name": "ops", "command": COMMAND}, giveUpAfterSeconds=300, queueLimit=1
    )
    inbox.refusals = 10**9
    async with a_plane(tmp_path / "data", notify=config) as plane:
        await plane.client.write(a_job("first", {NOTIFY: "ops"}, exit_code="1"))
        await asyncio.sleep(30)
        await plane.client.write(a_job("second", {NOTIFY: "ops"}, exit_code="1"))
        await asyncio.sleep(30)
        assert [text for reason, text in await warnings(plane) if "Notif" in reason] == [
            "Message to ops (failed) was lost: the queue is full (1 messages)"
        ]
        await asyncio.sleep(600)
        lost = [text for reason, text in await warnings(plane) if "Notif" in reason]
        assert "Message to ops (failed) was lost: delivery timed out" in lost
        assert plane.metrics.notifications_waiting.value(target="ops") == 0
        assert plane.metrics.notifications.value(target="ops", result="dropped") == 2
        # The delay is doubled each time.
        assert inbox.attempts <= 10
