"""Job view of the planner and the controllers."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from onejob.objects.meta import (
    Condition,
    Key,
    LabelSelector,
    Meta,
    View,
    condition_is_true,
    find_condition,
)


class ExitCodesRule(View, frozen=True):
    container_name: str | None = None
    operator: str = ""
    values: tuple[int, ...] = ()


class PodConditionPattern(View, frozen=True):
    type: str = ""
    status: str = ""


class FailureRule(View, frozen=True):
    action: str = ""
    on_exit_codes: ExitCodesRule | None = None
    on_pod_conditions: tuple[PodConditionPattern, ...] = ()


class PodFailurePolicy(View, frozen=True):
    rules: tuple[FailureRule, ...] = ()


class SuccessRule(View, frozen=True):
    succeeded_indexes: str | None = None
    succeeded_count: int | None = None


class SuccessPolicy(View, frozen=True):
    rules: tuple[SuccessRule, ...] = ()


class GangPolicy(View, frozen=True):
    min_count: int | None = None


class SchedulingPolicy(View, frozen=True):
    """The policy "basic" has no fields."""

    gang: GangPolicy | None = None


class JobScheduling(View, frozen=True):
    """Gang scheduling of a Job's Pods; acts with the feature gate WorkloadWithJob."""

    scheduling_policy: SchedulingPolicy = SchedulingPolicy()
    #: Copied to the Workload, without effect on one node.
    scheduling_constraints: dict[str, Any] = msgspec.field(default_factory=dict)
    disruption_mode: dict[str, Any] = msgspec.field(default_factory=dict)
    resource_claims: tuple[dict[str, Any], ...] = ()


class JobSpec(View, frozen=True):
    parallelism: int | None = None
    completions: int | None = None
    active_deadline_seconds: int | None = None
    backoff_limit: int | None = None
    backoff_limit_per_index: int | None = None
    max_failed_indexes: int | None = None
    completion_mode: str = "NonIndexed"
    suspend: bool = False
    pod_failure_policy: PodFailurePolicy | None = None
    success_policy: SuccessPolicy | None = None
    pod_replacement_policy: str = "TerminatingOrFailed"
    selector: LabelSelector | None = None
    manual_selector: bool = False
    ttl_seconds_after_finished: int | None = None
    managed_by: str | None = None
    scheduling: JobScheduling | None = None
    #: Fields of the original proposal that upstream never shipped, and fields of our own
    #: (docs/reference/fields.md).
    backoff_seconds: int | None = None
    failed_pods_limit: int | None = None
    #: Raw stored bytes; `onejob.planning.job.pod_template` creates Pods from them.
    template: msgspec.Raw = msgspec.Raw(b"{}")


class UncountedPods(View, frozen=True):
    succeeded: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


class JobStatus(View, frozen=True):
    conditions: tuple[Condition, ...] = ()
    start_time: datetime | None = None
    completion_time: datetime | None = None
    active: int = 0
    succeeded: int = 0
    failed: int = 0
    ready: int | None = None
    terminating: int | None = None
    completed_indexes: str = ""
    failed_indexes: str | None = None
    uncounted_terminated_pods: UncountedPods | None = None


class Job(View, frozen=True):
    metadata: Meta = Meta()
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()

    @property
    def key(self) -> Key:
        return Key("jobs.batch", self.metadata.namespace, self.metadata.name)

    @property
    def indexed(self) -> bool:
        return self.spec.completion_mode == "Indexed"

    @property
    def finished_condition(self) -> Condition | None:
        """The Complete or Failed condition whose status is True, or None."""
        for condition in self.status.conditions:
            if condition.type in ("Complete", "Failed") and condition.status == "True":
                return condition
        return None

    @property
    def finished(self) -> bool:
        return self.finished_condition is not None

    def condition_is_true(self, kind: str) -> bool:
        return condition_is_true(self.status.conditions, kind)

    def condition(self, kind: str) -> Condition | None:
        return find_condition(self.status.conditions, kind)


def is_finished(document: Mapping[str, Any]) -> bool:
    """Return `Job.finished` for a document that was not decoded into a view."""
    return finished_condition(document) is not None


def finished_condition(document: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return `Job.finished_condition` for a document, or None.

    Clients may have written conditions without any of their fields.
    """
    for condition in document.get("status", {}).get("conditions") or ():
        if condition.get("type") in ("Complete", "Failed") and condition.get("status") == "True":
            found: Mapping[str, Any] = condition
            return found
    return None


_decoder = msgspec.json.Decoder(Job)


def read_job(document: bytes) -> Job:
    return _decoder.decode(document)
