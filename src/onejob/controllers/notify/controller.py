"""Notification controller: watch Jobs and CronJobs and notify the targets in their annotations.

No Job waits for a notification: handlers only record changes, and everything else happens in
separate tasks. Jobs that ended while the server was stopped are found in the first list after its
start.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final

import apsw

from onejob.client.events import about
from onejob.controllers.context import ControllerContext
from onejob.controllers.due_keys import DeadlineTimer
from onejob.controllers.notify.channels import channel_to
from onejob.controllers.notify.config import NotifyConfig
from onejob.controllers.notify.delivery import Channel
from onejob.controllers.notify.outbox import FILE, Outbox, OutboxFile, open_outbox
from onejob.controllers.notify.sending import Sender
from onejob.informers.cache import Delta
from onejob.objects.cronjob import CronJob
from onejob.objects.job import Job
from onejob.objects.meta import CRONJOBS, JOBS, NAMESPACES, Key, Meta
from onejob.planning.notify.annotations import (
    NOTIFY_ANNOTATION,
    NOTIFY_ON_ANNOTATION,
    Subscription,
    effective_subscription,
    read_subscription,
    unknown_targets,
)
from onejob.planning.notify.events import cronjob_lateness, ended_at, job_late_at
from onejob.planning.notify.messages import Message
from onejob.planning.notify.record import (
    NotificationRecord,
    RecordChange,
    cronjob_is_late,
    job_ended,
    job_is_late,
)

log = logging.getLogger(__name__)

BAD_ANNOTATION: Final = "BadNotifyAnnotation"
NOT_DELIVERED: Final = "NotificationNotDelivered"
#: Seconds. Messages are sent once they are on disk, or after this time: a full disk is worth a
#: message.
_DURABLE_SECONDS: Final = 5.0
_OPEN_AGAIN_SECONDS: Final = 5.0
#: Upper bound on unprocessed ends, whose Jobs may already be deleted.
_MAX_QUEUED_REQUESTS: Final = 100_000
_BATCH: Final = 200


class Notifications:
    """Controller of notifications."""

    def __init__(
        self,
        context: ControllerContext,
        config: NotifyConfig,
        folder: Path,
        *,
        local_zone: str = "UTC",
        channels: Mapping[str, Channel] | None = None,
    ) -> None:
        """`folder` contains the outbox. Raises BadNotifyConfig."""
        self._clock = context.clock
        self._metrics = context.metrics
        self._recorder = context.recorder
        self._config = config
        self._file = folder / FILE
        self._local_zone = local_zone
        self._usual = {target.name: target.events for target in config.targets}
        self._give_up_after = timedelta(seconds=config.give_up_after_seconds)
        self._channels = channels or {
            target.name: channel_to(target, context.clock) for target in config.targets
        }
        self._ended: dict[str, Job] = {}
        self._gone: dict[str, None] = {}
        self._late = DeadlineTimer(context.clock)
        self._wake = asyncio.Event()
        informers = context.informers
        self._jobs = informers.jobs.cache
        self._cronjobs = informers.cronjobs.cache
        self._namespaces = informers.metadata(NAMESPACES).cache
        informers.jobs.on_change(self._jobs_changed)
        informers.cronjobs.on_change(self._cronjobs_changed)

    def clock_jumped(self) -> None:
        self._late.clock_jumped()

    async def run(self) -> None:
        """Watch Jobs and CronJobs and send messages until cancelled."""
        file = await self._open_outbox()
        outbox = Outbox(file)
        sender = Sender(
            self._channels,
            remove=outbox.remove,
            gave_up=self._gave_up,
            give_up_after=self._give_up_after,
            limit=self._config.queue_limit,
            clock=self._clock,
            metrics=self._metrics,
        )
        self._note_deleted(file.record)
        for message in file.messages:
            sender.add(message)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(outbox.run())
                group.create_task(self._process_jobs(file.record, outbox, sender))
                group.create_task(self._process_late(file.record, outbox, sender))
                group.create_task(sender.run())
        finally:
            await outbox.close()

    async def _open_outbox(self) -> OutboxFile:
        """Open the outbox, retrying until that succeeds."""
        while True:
            try:
                return await asyncio.to_thread(open_outbox, self._file, self._clock.now())
            except (apsw.Error, OSError) as error:
                log.warning("cannot open %s: %s; retrying", self._file.name, error)
                await asyncio.sleep(_OPEN_AGAIN_SECONDS)

    def _note_deleted(self, record: NotificationRecord) -> None:
        there = {view.metadata.uid for cache in (self._jobs, self._cronjobs) for view in cache}
        self._gone.update(dict.fromkeys(uid for uid in record.seen if uid not in there))
        if self._gone:
            self._wake.set()

    # --- changes --------------------------------------------------------------------------

    def _jobs_changed(self, deltas: Sequence[Delta[Job]]) -> None:
        """Note Jobs that have ended, and the time at which others are late."""
        for delta in deltas:
            job = delta.new or delta.old
            if job is None:
                continue
            uid = job.metadata.uid
            if job.finished and (delta.new is None or delta.old is None or not delta.old.finished):
                self._enqueue_if_finished(job)
            if delta.new is None:
                self._gone[uid] = None
                self._wake.set()
            late_at = None if delta.new is None else job_late_at(job)
            if late_at is not None:
                self._late.set(delta.key, late_at)
            else:
                self._late.drop(delta.key)
            if delta.new is not None and not job.finished:
                old = None if delta.old is None else delta.old.metadata
                self._check_annotations("Job", old, job.metadata)

    def _enqueue_if_finished(self, job: Job) -> None:
        self._ended[job.metadata.uid] = job
        if len(self._ended) > _MAX_QUEUED_REQUESTS:
            del self._ended[next(iter(self._ended))]
        self._wake.set()

    def _cronjobs_changed(self, deltas: Sequence[Delta[CronJob]]) -> None:
        """Note the time at which CronJobs are late."""
        for delta in deltas:
            lateness = None
            if delta.new is not None:
                lateness = cronjob_lateness(delta.new, self._local_zone)
                old = None if delta.old is None else delta.old.metadata
                self._check_annotations("CronJob", old, delta.new.metadata)
            elif delta.old is not None:
                self._gone[delta.old.metadata.uid] = None
                self._wake.set()
            if lateness is None:
                self._late.drop(delta.key)
            else:
                self._late.set(delta.key, lateness.at)

    def _check_annotations(self, kind: str, before: Meta | None, now: Meta) -> None:
        """Record an Event for unusable annotations.

        This happens when they are written, rather than when they are first needed.
        """
        names = (NOTIFY_ANNOTATION, NOTIFY_ON_ANNOTATION)
        said = [now.annotations.get(name) for name in names]
        if said == [None, None] or (
            before is not None and said == [before.annotations.get(name) for name in names]
        ):
            return
        subscription = read_subscription(now.annotations)
        problems = [*subscription.problems]
        if unknown := unknown_targets(subscription, self._usual.keys()):
            problems.append(
                f"{NOTIFY_ANNOTATION}: unknown target {', '.join(unknown)}; this server has "
                f"{', '.join(sorted(self._usual)) or 'none'}"
            )
        if problems:
            text = "; ".join(problems)
            subject = about("batch/v1", kind, now)
            self._recorder.record(subject, "Warning", BAD_ANNOTATION, text)
            log.warning("%s %s/%s: %s", kind, now.namespace, now.name, text)

    # --- processing -----------------------------------------------------------------------

    async def _process_jobs(
        self, record: NotificationRecord, outbox: Outbox, sender: Sender
    ) -> None:
        """Report ended Jobs until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            ended, self._ended = self._ended, {}
            gone, self._gone = self._gone, {}
            # In the order in which they ended: the next Job of a CronJob may be in the same batch.
            for job in sorted(ended.values(), key=lambda job: ended_at(job) or record.since):
                await self._process_finished(job, record, outbox, sender)
            forgotten = {uid: None for uid in gone if uid in record.seen}
            if forgotten:
                await self._carry_out(RecordChange(forgotten), record, outbox, sender)

    async def _process_finished(
        self, job: Job, record: NotificationRecord, outbox: Outbox, sender: Sender
    ) -> None:
        """Report the end of a Job."""
        subscription = self._subscription(job)
        if subscription is None:
            return
        try:
            now = self._clock.now()
            change = job_ended(job, subscription, record, self._usual, now, self._give_up_after)
        except Exception:
            # A failure here must not stop Jobs or other notifications.
            log.exception("%s: cannot send the notification of its end", job.key)
            return
        if change is not None:
            await self._carry_out(change, record, outbox, sender)

    async def _process_late(
        self, record: NotificationRecord, outbox: Outbox, sender: Sender
    ) -> None:
        """Report late Jobs and CronJobs until cancelled."""
        while True:
            for key in await self._late.take(_BATCH):
                try:
                    change = self._late_change(key, record)
                except Exception:
                    log.exception("%s: cannot send the notification of its delay", key)
                    continue
                if change is not None:
                    await self._carry_out(change, record, outbox, sender)
            await asyncio.sleep(0)

    def _late_change(self, key: Key, record: NotificationRecord) -> RecordChange | None:
        """Return the change of the record if the object is late now, else None."""
        now = self._clock.now()
        if key.resource == JOBS:
            job = self._jobs.get(key)
            late_at = None if job is None else job_late_at(job)
            if job is None or late_at is None or (subscription := self._subscription(job)) is None:
                return None
            if late_at > now:
                self._late.set(key, late_at)
                return None
            return job_is_late(job, subscription, record, self._usual, now)
        assert key.resource == CRONJOBS
        cronjob = self._cronjobs.get(key)
        lateness = None if cronjob is None else cronjob_lateness(cronjob, self._local_zone)
        if cronjob is None or lateness is None:
            return None
        subscription = effective_subscription(
            cronjob.metadata.annotations, self._namespace_annotations(key.namespace)
        )
        if subscription is None:
            return None
        if lateness.at > now:
            self._late.set(key, lateness.at)
            return None
        return cronjob_is_late(cronjob, lateness, subscription, record, self._usual, now)

    async def _carry_out(
        self, change: RecordChange, record: NotificationRecord, outbox: Outbox, sender: Sender
    ) -> None:
        """Record a change and queue its messages, once it is durable or that has taken too long."""
        record.apply(change)
        written = outbox.write(change)
        if not change.messages:
            return
        await asyncio.wait((written,), timeout=_DURABLE_SECONDS)
        for message in change.messages:
            log.info("notify %s: %s", message.target, message.text)
            sender.add(message)

    def _subscription(self, job: Job) -> Subscription | None:
        """Return the Job's subscription, with the defaults of its CronJob and namespace."""
        metadata = job.metadata
        owner = metadata.controller_ref
        cronjob = None
        if owner is not None and owner.kind == "CronJob":
            cronjob = self._cronjobs.get(Key(CRONJOBS, metadata.namespace, owner.name))
        return effective_subscription(
            metadata.annotations,
            {} if cronjob is None else cronjob.metadata.annotations,
            self._namespace_annotations(metadata.namespace),
        )

    def _namespace_annotations(self, name: str) -> Mapping[str, str]:
        namespace = self._namespaces.get(Key(NAMESPACES, "", name))
        annotations: Mapping[str, str] = {} if namespace is None else namespace.metadata.annotations
        return annotations

    def _gave_up(self, message: Message, why: str) -> None:
        """Log a lost message and record an Event about it."""
        what = f"{message.kind} {message.namespace}/{message.name}"
        log.warning("notify: lost the message %s about %s: %s", message.id, what, why)
        subject = about(
            "batch/v1",
            message.kind,
            Meta(name=message.name, namespace=message.namespace, uid=message.uid),
        )
        text = f"Message to {message.target} ({message.event}) was lost: {why}"
        self._recorder.record(subject, "Warning", NOT_DELIVERED, text)
