"""Workloads and PodGroups of Jobs, for the Job controller (WorkloadWithJob).

They are written before the first Pod of a Job. Their names follow from the Job's UID, so that an
interrupted sync finds what it has created.
"""

from typing import Any, Final

import msgspec

from onejob.client.base import Client, Create, Patch
from onejob.client.events import EventRecorder, about
from onejob.objects.job import Job
from onejob.objects.meta import Key
from onejob.planning.job.workload import (
    has_never_started,
    may_have_workload,
    min_count,
    pod_group_document,
    pod_group_name,
    workload_document,
    workload_name,
)
from onejob.wire.errors import NotFound

WORKLOADS: Final = "workloads.scheduling.k8s.io"
POD_GROUPS: Final = "podgroups.scheduling.k8s.io"


class JobWorkloads:
    """Writer of the Workload and the PodGroup of each Job."""

    def __init__(self, client: Client, recorder: EventRecorder) -> None:
        self._client = client
        self._recorder = recorder

    async def ensure(self, job: Job, *, has_pods: bool) -> str:
        """Return the name of the PodGroup of the Job's Pods; "" if they are scheduled one by one.

        Creates missing objects of a Job that has never started, and follows a changed `minCount`.
        Raises ApiError.
        """
        if job.finished or not may_have_workload(job):
            return ""
        creates = has_never_started(job, has_pods=has_pods)
        workload = await self._ensure(
            job, WORKLOADS, workload_name(job), workload_document(job) if creates else None
        )
        if workload is None:
            return ""
        group = await self._ensure(
            job,
            POD_GROUPS,
            pod_group_name(job),
            pod_group_document(job, workload["metadata"]["uid"]) if creates else None,
        )
        if group is None:
            return ""
        await self._follow_min_count(job, workload, group)
        return pod_group_name(job)

    async def _ensure(
        self, job: Job, resource: str, name: str, missing: dict[str, Any] | None
    ) -> dict[str, Any] | None:
        """Return the Job's own object, creating it from `missing`, if given."""
        namespace = job.metadata.namespace
        try:
            found = _decode(await self._client.get(Key(resource, namespace, name)))
        except NotFound:
            if missing is None:
                return None
            written = await self._client.write(
                Create(resource, namespace, msgspec.json.encode(missing))
            )
            kind = missing["kind"]
            what = f"Created {kind} {name} for Job {job.metadata.name}"
            subject = about("batch/v1", "Job", job.metadata)
            self._recorder.record(subject, "Normal", f"{kind}Created", what)
            return _decode(written.document)
        owners = found["metadata"].get("ownerReferences", ())
        owned = any(owner["uid"] == job.metadata.uid for owner in owners)
        # An object of this name that a client has made is not the Job's.
        return found if owned else None

    async def _follow_min_count(
        self, job: Job, workload: dict[str, Any], group: dict[str, Any]
    ) -> None:
        wanted = min_count(job)
        templates = workload["spec"]["podGroupTemplates"]
        if wanted is None or len(templates) != 1:
            return
        policy = {"schedulingPolicy": {"gang": {"minCount": wanted}}}
        if _quorum(templates[0]) not in (None, wanted):
            patch = {"spec": {"podGroupTemplates": [templates[0] | policy]}}
            await self._patch(job, WORKLOADS, workload, patch)
        if _quorum(group["spec"]) not in (None, wanted):
            await self._patch(job, POD_GROUPS, group, {"spec": policy})

    async def _patch(
        self, job: Job, resource: str, document: dict[str, Any], patch: dict[str, Any]
    ) -> None:
        key = Key(resource, job.metadata.namespace, document["metadata"]["name"])
        body = patch | {"metadata": {"uid": document["metadata"]["uid"]}}
        await self._client.write(Patch(key, msgspec.json.encode(body), "merge"))


def _quorum(spec: dict[str, Any]) -> int | None:
    gang = spec["schedulingPolicy"].get("gang")
    return None if gang is None else gang["minCount"]


def _decode(document: bytes) -> dict[str, Any]:
    return msgspec.json.decode(document, type=dict[str, Any])
