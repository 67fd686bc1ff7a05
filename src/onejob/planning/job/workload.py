"""Workload and PodGroup of a Job, for gang scheduling (WorkloadWithJob). Pure.

Both are created before the first Pod of a Job and have names that follow from its UID, so a
controller that is interrupted finds what it has created.
"""

import hashlib
from typing import Any, Final, TypeAlias

import msgspec

from onejob.objects.job import Job, JobScheduling
from onejob.objects.meta import View
from onejob.objects.pod_spec import SchedulingGroup
from onejob.planning.job.claiming import owner_reference

Document: TypeAlias = dict[str, Any]

API_VERSION: Final = "scheduling.k8s.io/v1beta1"
_MAX_NAME: Final = 253
_HASH_LENGTH: Final = 10


class _TemplateSpec(View, frozen=True):
    scheduling_group: SchedulingGroup | None = None


class _Template(View, frozen=True):
    spec: _TemplateSpec = _TemplateSpec()


_read_template = msgspec.json.Decoder(_Template).decode


def workload_name(job: Job) -> str:
    return _hashed_name(job, "")


def pod_group_name(job: Job) -> str:
    return _hashed_name(job, "-pgt-0")


def may_have_workload(job: Job) -> bool:
    """Return whether the Job controller schedules the Job as a group.

    Jobs of other controllers, such as CronJobs, belong to the Workload of their owner, and Pods
    that name a PodGroup already keep it.
    """
    if job.metadata.controller_ref is not None:
        return False
    return _read_template(job.spec.template).spec.scheduling_group is None


def has_never_started(job: Job, *, has_pods: bool) -> bool:
    """Return whether objects may still be created: Pods that exist belong to no gang."""
    status = job.status
    return not (
        has_pods
        or status.start_time is not None
        or status.succeeded
        or status.failed
        or any(condition.type == "Suspended" for condition in status.conditions)
    )


def min_count(job: Job) -> int | None:
    """Return the number of Pods that start together; None with the policy "basic"."""
    scheduling = job.spec.scheduling or JobScheduling()
    gang = scheduling.scheduling_policy.gang
    if gang is None:
        return None
    if gang.min_count is not None:
        return gang.min_count
    parallelism = job.spec.parallelism
    return max(1, 1 if parallelism is None else parallelism)


def workload_document(job: Job) -> Document:
    return {
        "apiVersion": API_VERSION,
        "kind": "Workload",
        "metadata": {
            "name": workload_name(job),
            "namespace": job.metadata.namespace,
            "ownerReferences": [owner_reference(job)],
        },
        "spec": {
            "controllerRef": {"apiGroup": "batch", "kind": "Job", "name": job.metadata.name},
            "podGroupTemplates": [{"name": _template_name(job), **_template(job)}],
        },
    }


def pod_group_document(job: Job, workload_uid: str) -> Document:
    workload = {
        "apiVersion": API_VERSION,
        "kind": "Workload",
        "name": workload_name(job),
        "uid": workload_uid,
    }
    return {
        "apiVersion": API_VERSION,
        "kind": "PodGroup",
        "metadata": {
            "name": pod_group_name(job),
            "namespace": job.metadata.namespace,
            "ownerReferences": [owner_reference(job), workload],
        },
        "spec": {
            "workloadRef": {
                "workloadName": workload_name(job),
                "templateName": _template_name(job),
            },
            **_template(job),
        },
    }


def _template(job: Job) -> Document:
    scheduling = job.spec.scheduling or JobScheduling()
    quorum = min_count(job)
    policy: Document = {"basic": {}} if quorum is None else {"gang": {"minCount": quorum}}
    template: Document = {"schedulingPolicy": policy}
    if scheduling.scheduling_constraints:
        template["schedulingConstraints"] = scheduling.scheduling_constraints
    if scheduling.disruption_mode:
        template["disruptionMode"] = scheduling.disruption_mode
    if scheduling.resource_claims:
        template["resourceClaims"] = scheduling.resource_claims
    return template


def _template_name(job: Job) -> str:
    return f"{job.metadata.name}-pgt-0"


def _hashed_name(job: Job, suffix: str) -> str:
    digest = hashlib.sha256(job.metadata.uid.encode()).hexdigest()[:_HASH_LENGTH]
    ending = f"{suffix}-{digest}"
    return job.metadata.name[: _MAX_NAME - len(ending)].rstrip("-.") + ending
