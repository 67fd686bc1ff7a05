"""Result types of a workflow sync."""

from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct, field

from onejob.objects.job import Job
from onejob.objects.workflow import Workflow, WorkflowStatus
from onejob.planning.history import RemovedJob
from onejob.planning.job.plan import Event
from onejob.planning.workflow.results import ResultsRead


class JobsByName(Protocol):
    """Jobs of the workflow's namespace: a dict, or a cache."""

    def get(self, name: str, /) -> Job | None: ...


class Observed(Struct, frozen=True):
    """Facts beside the workflow that a plan depends on. The caches include all own writes."""

    jobs: JobsByName = field(default_factory=dict[str, Job])
    #: Results by UID of a completed Job, of those tasks that declare any.
    results: Mapping[str, ResultsRead] = field(default_factory=dict)
    #: UIDs of Jobs, by task, that were created but may be missing from the status.
    created: Mapping[str, str] = field(default_factory=dict)
    #: UIDs of deleted Jobs whose Pods have not all ended.
    with_pods: frozenset[str] = frozenset()
    #: Jobs of the workflow that were removed, by name, while their start or end was not recorded.
    removed: Mapping[str, RemovedJob] = field(default_factory=dict)
    #: Whether new Jobs get the start finalizer, because their UIDs are recorded by a later write.
    with_finalizer: bool = False


class JobCreation(Struct, frozen=True):
    task: str
    name: str
    document: bytes


class JobChange(Struct, frozen=True):
    """Merge patch of a Job at the version that was evaluated."""

    job: Job
    body: bytes


class Plan(Struct, frozen=True):
    workflow: Workflow
    #: The status to write, with new Jobs as running but without their UIDs; None if unchanged.
    status: WorkflowStatus | None = None
    creations: tuple[JobCreation, ...] = ()
    changes: tuple[JobChange, ...] = ()
    deletions: tuple[Job, ...] = ()
    #: Completed Jobs whose results must be read first. The plan is empty otherwise.
    unread: tuple[Job, ...] = ()
    #: True if tasks ended since the last status. Their ends must be on disk before a Job starts.
    ends: bool = False
    events: tuple[Event, ...] = ()
    requeue_seconds: float | None = None
    #: Why nothing starts, for `onejob why`.
    note: str = ""


class CreationFailed(Struct, frozen=True):
    """Creation of a task's Job refused for good: the task fails."""

    task: str
    reason: str
    message: str
