"""CronJob view of its controller."""

from collections.abc import Callable
from datetime import datetime
from typing import Protocol

import msgspec

from onejob.objects.job import read_job
from onejob.objects.meta import CRONJOBS, JOBS, Condition, Key, Meta, View


class ChildStatus(Protocol):
    @property
    def start_time(self) -> datetime | None: ...

    @property
    def completion_time(self) -> datetime | None: ...


class Child(Protocol):
    """View of what a schedule creates: a Job or a Workflow."""

    @property
    def metadata(self) -> Meta: ...

    @property
    def status(self) -> ChildStatus: ...

    @property
    def key(self) -> Key: ...

    @property
    def finished(self) -> bool: ...

    @property
    def finished_condition(self) -> Condition | None: ...


class CronKind(msgspec.Struct, frozen=True):
    """A kind that creates children by a schedule, and the kind of these."""

    api_version: str
    kind: str
    resource: str
    child_api_version: str
    child_kind: str
    child_resource: str
    read: "Callable[[bytes], CronJob]"
    read_child: Callable[[bytes], Child]

    @property
    def noun(self) -> str:
        """Word for a child in Events."""
        return self.child_kind.lower()


class ObjectReference(View, frozen=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class JobTemplateMeta(View, frozen=True):
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)


class JobTemplate(View, frozen=True):
    metadata: JobTemplateMeta = JobTemplateMeta()
    #: Copied into each Job as stored.
    spec: msgspec.Raw = msgspec.Raw(b"{}")


class CronJobSpec(View, frozen=True):
    schedule: str = ""
    time_zone: str | None = None
    starting_deadline_seconds: int | None = None
    concurrency_policy: str = "Allow"
    suspend: bool = False
    job_template: JobTemplate = JobTemplate()
    successful_jobs_history_limit: int | None = None
    failed_jobs_history_limit: int | None = None


class CronJobStatus(View, frozen=True):
    active: tuple[ObjectReference, ...] = ()
    last_schedule_time: datetime | None = None
    last_successful_time: datetime | None = None
    next_schedule_time: datetime | None = None


class CronJob(View, frozen=True):
    metadata: Meta = Meta()
    spec: CronJobSpec = CronJobSpec()
    status: CronJobStatus = CronJobStatus()

    @property
    def key(self) -> Key:
        return Key(self.cron_kind.resource, self.metadata.namespace, self.metadata.name)

    @property
    def cron_kind(self) -> CronKind:
        return CRONJOB


_decoder = msgspec.json.Decoder(CronJob)


def read_cronjob(document: bytes) -> CronJob:
    return _decoder.decode(document)


CRONJOB = CronKind("batch/v1", "CronJob", CRONJOBS, "batch/v1", "Job", JOBS, read_cronjob, read_job)
