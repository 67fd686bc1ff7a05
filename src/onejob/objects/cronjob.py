"""CronJob view of its controller."""

from datetime import datetime

import msgspec

from onejob.objects.meta import Key, Meta, View


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
        return Key("cronjobs.batch", self.metadata.namespace, self.metadata.name)


_decoder = msgspec.json.Decoder(CronJob)


def read_cronjob(document: bytes) -> CronJob:
    return _decoder.decode(document)
