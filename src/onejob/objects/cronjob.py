"""The CronJob as its controller sees it."""

from datetime import datetime

import msgspec

from onejob.objects.meta import Key, Meta, View


class ObjectReference(View):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class JobTemplateMeta(View):
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class JobTemplate(View):
    metadata: JobTemplateMeta = JobTemplateMeta()
    #: Copied into each Job as stored.
    spec: msgspec.Raw = msgspec.Raw(b"{}")


class CronJobSpec(View):
    schedule: str = ""
    time_zone: str | None = None
    starting_deadline_seconds: int | None = None
    concurrency_policy: str = "Allow"
    suspend: bool = False
    job_template: JobTemplate = JobTemplate()
    successful_jobs_history_limit: int | None = None
    failed_jobs_history_limit: int | None = None


class CronJobStatus(View):
    active: tuple[ObjectReference, ...] = ()
    last_schedule_time: datetime | None = None
    last_successful_time: datetime | None = None


class CronJob(View):
    metadata: Meta = Meta()
    spec: CronJobSpec = CronJobSpec()
    status: CronJobStatus = CronJobStatus()

    @property
    def key(self) -> Key:
        return Key("cronjobs.batch", self.metadata.namespace, self.metadata.name)


_decoder = msgspec.json.Decoder(CronJob)


def read_cronjob(document: bytes) -> CronJob:
    return _decoder.decode(document)
