"""The controllers of a control plane: a table of functions that make them.

Controllers that `onejob run` or most servers do not need are imported when they are made.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from onejob.assembly.job_admission import add_start_gates, job_settings
from onejob.assembly.parts import Controller, Parts, QueuedController
from onejob.controllers.custom_resources import DefinitionController
from onejob.controllers.event_expiry import EventExpiry
from onejob.controllers.garbage import GarbageCollector
from onejob.controllers.job import JobController
from onejob.controllers.mirror.on_demand import MirrorOnDemand, http_connection
from onejob.controllers.namespaces import NamespaceController
from onejob.controllers.pending.controller import PendingDeadlines
from onejob.controllers.pod_gc import PodGarbageCollector
from onejob.controllers.selection import (
    CERTIFICATES,
    CLAIMS,
    CLUSTER_ROLES,
    CRONJOB,
    CRONWORKFLOW,
    DEPLOYMENT,
    DISRUPTION,
    ENDPOINTS,
    GARBAGE,
    JOB,
    MIRROR,
    NAMESPACE,
    NOTIFICATION,
    PENDING,
    POD_GARBAGE,
    QUOTA,
    REPLICA_SET,
    TTL,
    WORKFLOW,
)
from onejob.controllers.ttl import TtlController
from onejob.informers.queue_metrics import export_queues
from onejob.metrics import Plugin

if TYPE_CHECKING:
    from onejob.assembly.claims import Claims
    from onejob.controllers.certificates.controller import CertificateSigning
    from onejob.controllers.cronjob import CronJobController
    from onejob.controllers.job_workloads import JobWorkloads
    from onejob.controllers.node_maintenance import NodeMaintenance
    from onejob.controllers.workflow import WorkflowController


def _job(parts: Parts) -> Controller:
    gate = add_start_gates(parts)
    return JobController(
        parts.controller_context(JOB),
        settings=job_settings(parts),
        new_series=lambda: parts.new_series(JOB),
        gate=gate,
        maintenance=_node_maintenance(parts),
        workloads=_job_workloads(parts),
    )


def _node_maintenance(parts: Parts) -> "NodeMaintenance | None":
    if not parts.settings.gates.enabled("JobPodReplacementOnNodeMaintenance"):
        return None
    from onejob.controllers.node_maintenance import NodeMaintenance

    maintenance = NodeMaintenance(parts.own_client, parts.informers.pods)
    parts.controllers.add(maintenance.run())
    return maintenance


def _job_workloads(parts: Parts) -> "JobWorkloads | None":
    if not parts.settings.gates.enabled("WorkloadWithJob"):
        return None
    from onejob.controllers.job_workloads import JobWorkloads

    return JobWorkloads(parts.own_client, parts.controller_context(JOB).recorder)


def _cronjob(parts: Parts) -> Controller:
    from onejob.controllers.cronjob import CronJobController

    return CronJobController(
        parts.controller_context(CRONJOB),
        local_zone=parts.settings.local_zone,
        new_series=lambda: parts.new_series(CRONJOB),
        shows_next_slot=parts.settings.gates.enabled("CronJobsNextScheduleTime"),
    )


def _ttl(parts: Parts) -> Controller:
    gates = parts.settings.gates
    return TtlController(
        parts.acting_client(TTL),
        parts.informers,
        clock=parts.clock,
        metrics=parts.metrics,
        gates=gates,
        kinds=parts.service.kinds,
        recorder=parts.controller_context(TTL).recorder,
        workflows=gates.enabled("TTLAfterFinished"),
    )


def _garbage(parts: Parts) -> Controller:
    return GarbageCollector(parts.controller_context(GARBAGE), parts.service.kinds)


def _pod_garbage(parts: Parts) -> Controller:
    client = parts.acting_client(POD_GARBAGE)
    return PodGarbageCollector(client, parts.informers, clock=parts.clock, metrics=parts.metrics)


def _namespace(parts: Parts) -> Controller:
    return NamespaceController(
        parts.acting_client(NAMESPACE),
        parts.informers,
        clock=parts.clock,
        root_ca=parts.root_ca,
        kinds=parts.service.kinds,
    )


def _pending(parts: Parts) -> Controller:
    return PendingDeadlines(parts.controller_context(PENDING))


def _quota(parts: Parts) -> Controller:
    from onejob.controllers.quotas import QuotaController

    quotas = parts.service.admission.quotas
    return QuotaController(parts.acting_client(QUOTA), quotas, clock=parts.clock)


def _disruption(parts: Parts) -> Controller:
    from onejob.controllers.disruption import DisruptionController

    return DisruptionController(parts.controller_context(DISRUPTION), parts.service.kinds)


def _workflow(parts: Parts) -> Controller:
    from onejob.controllers.on_demand import OnDemand, holds_start

    context = parts.controller_context(WORKFLOW)

    def make() -> "WorkflowController":
        from onejob.controllers.workflow import WorkflowController

        return WorkflowController(
            context,
            new_series=lambda: parts.new_series(WORKFLOW),
            removed_job=lambda *job: parts.service.history.removed_job(*job),
        )

    workflows = OnDemand(parts.informers.workflows, make)
    workflows.also_for(parts.informers.jobs, holds_start)

    def lacks_jobs(namespace: str, name: str, uid: str) -> bool:
        controller = workflows.controller
        return controller is None or controller.lacks_jobs(namespace, name, uid)

    def answer_from_now_on() -> None:
        parts.service.workflow_lacks_jobs = lacks_jobs

    # Not earlier: with incomplete caches it does not know of all workflows.
    parts.on_begin(answer_from_now_on)
    return workflows


def _cronworkflow(parts: Parts) -> Controller:
    from onejob.controllers.on_demand import OnDemand

    context = parts.controller_context(CRONWORKFLOW)

    def make() -> "CronJobController":
        from onejob.controllers.cronjob import CronJobController
        from onejob.objects.workflow import CRONWORKFLOW as KIND

        return CronJobController(
            context,
            local_zone=parts.settings.local_zone,
            new_series=lambda: parts.new_series(CRONWORKFLOW),
            kind=KIND,
        )

    return OnDemand(parts.informers.cronworkflows, make)


def _mirror(parts: Parts) -> Controller | None:
    # Without this gate the Job controller handles all Jobs, also mirrored ones.
    if not parts.settings.gates.enabled("JobManagedBy"):
        return None
    client, connect = parts.acting_client(MIRROR), http_connection(parts.rng)
    return MirrorOnDemand(client, parts.informers, clock=parts.clock, connect=connect)


def _notification(parts: Parts) -> Controller | None:
    settings = parts.settings
    if settings.notify is None:
        return None
    from onejob.controllers.notify.controller import Notifications

    notifications = Notifications(
        parts.controller_context(NOTIFICATION),
        settings.notify,
        settings.data_dir,
        local_zone=settings.local_zone,
    )
    parts.clock_watch.on_jump(notifications.clock_jumped)
    return notifications


def _cluster_roles(parts: Parts) -> Controller | None:
    access = parts.access
    if access is None:
        return None
    from onejob.controllers.access import ClusterRoleAggregation
    from onejob.planning.rbac.policy import CLUSTER_ROLES as RESOURCE

    return ClusterRoleAggregation(parts.acting_client(CLUSTER_ROLES), access.informers[RESOURCE])


def _certificates(parts: Parts) -> Controller | None:
    from onejob.controllers.on_demand import OnDemand

    pki = parts.pki
    if pki is None:
        return None
    resource = "certificatesigningrequests.certificates.k8s.io"

    def make() -> "CertificateSigning":
        from onejob.api.access.signing import CertificateSigner
        from onejob.controllers.certificates.controller import CertificateSigning

        context = parts.controller_context(CERTIFICATES)
        return CertificateSigning(context, CertificateSigner(pki))

    return OnDemand(parts.informers.metadata(resource), make)


def _deployment(parts: Parts) -> Controller:
    from onejob.assembly.deployments import deployment_controller

    return deployment_controller(parts)


def _replica_set(parts: Parts) -> Controller:
    from onejob.assembly.deployments import replica_set_controller

    return replica_set_controller(parts)


def _endpoints(parts: Parts) -> Controller:
    from onejob.assembly.endpoints import endpoints_controller

    return endpoints_controller(parts)


#: Name, as in `controllers/selection.py`, -> function that makes the controller, or None if the
#: settings leave it nothing to do. In the order in which they see changes.
_MAKERS: Final[Mapping[str, Callable[[Parts], Controller | None]]] = {
    JOB: _job,
    CRONJOB: _cronjob,
    TTL: _ttl,
    # Before the garbage collector, which would follow only the metadata of their kinds.
    DEPLOYMENT: _deployment,
    REPLICA_SET: _replica_set,
    GARBAGE: _garbage,
    POD_GARBAGE: _pod_garbage,
    NAMESPACE: _namespace,
    PENDING: _pending,
    QUOTA: _quota,
    DISRUPTION: _disruption,
    ENDPOINTS: _endpoints,
    WORKFLOW: _workflow,
    CRONWORKFLOW: _cronworkflow,
    MIRROR: _mirror,
    NOTIFICATION: _notification,
    CLUSTER_ROLES: _cluster_roles,
    CERTIFICATES: _certificates,
}


def add_controllers(parts: Parts, claims: "Claims") -> None:
    """Make the selected controllers, and those that cannot be deselected."""
    selected = parts.settings.controllers
    made = [make(parts) for name, make in _MAKERS.items() if name in selected]
    controllers = [controller for controller in made if controller is not None]
    if CLAIMS in selected:
        controllers.append(claims.controller())
    queued = [part for part in controllers if isinstance(part, QueuedController)]
    for part in queued:
        parts.clock_watch.on_jump(part.clock_jumped)
    export_queues(parts.metrics, lambda: [part.queues for part in queued])
    for controller in controllers:
        parts.controllers.add(controller.run())
    if WORKFLOW not in selected:
        parts.on_begin(partial(_record_no_task, parts))
    if JOB not in selected:
        parts.on_begin(partial(_await_no_job, parts))
    _add_server_controllers(parts)


def _record_no_task(parts: Parts) -> None:
    parts.service.workflow_lacks_jobs = lambda namespace, name, uid: False


def _await_no_job(parts: Parts) -> None:
    """Let records of Jobs expire: without the Job controller no Job waits for another one."""
    parts.service.awaits_end = lambda namespace, name, uid: False


def _add_server_controllers(parts: Parts) -> None:
    """Add controllers whose work Kubernetes' API server does itself."""
    expiry = EventExpiry(parts.own_client, clock=parts.clock)
    parts.clock_watch.on_jump(expiry.clock_jumped)
    definitions = DefinitionController(
        parts.own_client, lambda: parts.service.definitions, clock=parts.clock
    )
    for loop in (expiry.run(), definitions.run(), definitions.informer.run(), expiry.follow()):
        parts.controllers.add(loop)


def export_server_metrics(parts: Parts) -> None:
    """Export the figures of store and admission."""
    store, metrics, denied = parts.store, parts.metrics, parts.service.admission.denied
    metrics.admission_denied.read_each(
        lambda: {Plugin(plugin=plugin): count for plugin, count in denied.items()}
    )
    metrics.store_revision.read(lambda: store.revision)
    metrics.damaged_documents.read(lambda: len(store.damaged))
    metrics.store_commits.read(lambda: store.commits)
    metrics.store_writes.read(lambda: store.writes)
