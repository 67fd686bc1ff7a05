"""Composition root: builds store, API, controllers and node agent, and runs them.

`onejob run` starts a ControlPlane and uses it in this process; `onejob serve` puts the HTTPS server
in front of one.
"""

import asyncio
import os
import socket
from collections.abc import Callable, Coroutine, Mapping, Sequence, Set
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, Self, runtime_checkable

from msgspec import Struct, field

from onejob.api.admission.dynamic.attributes import CONFIGURATIONS
from onejob.api.service import Service
from onejob.api.unreadable import ReadabilityChecker
from onejob.client.events import EventRecorder
from onejob.client.local import LocalClient
from onejob.client.write_series import DurableWrites, StagedWrites, WriteSeries
from onejob.clock import Clock, SystemClock
from onejob.clock_watch import ClockWatch
from onejob.controllers.bootstrap import bootstrap
from onejob.controllers.context import ControllerContext
from onejob.controllers.custom_resources import DefinitionController
from onejob.controllers.event_expiry import EventExpiry
from onejob.controllers.garbage import GarbageCollector
from onejob.controllers.job import JobController
from onejob.controllers.mirror.on_demand import MirrorOnDemand, http_connection
from onejob.controllers.namespaces import NamespaceController
from onejob.controllers.pending.controller import PendingDeadlines
from onejob.controllers.pod_gc import PodGarbageCollector
from onejob.controllers.queueing.config import write_limits
from onejob.controllers.queueing.controller import QueueController
from onejob.controllers.selection import (
    ALL,
    CLUSTER_ROLES,
    CRONJOB,
    CRONWORKFLOW,
    DISRUPTION,
    GARBAGE,
    JOB,
    MIRROR,
    NAMESPACE,
    NOTIFICATION,
    PENDING,
    POD_GARBAGE,
    QUEUE,
    QUOTA,
    TTL,
    WORKFLOW,
)
from onejob.controllers.start_gates import AllGates, DependencyGate, StartGate
from onejob.controllers.ttl import TtlController
from onejob.gates import FeatureGates
from onejob.informers.cache import Delta
from onejob.informers.queue_metrics import export_queues
from onejob.informers.shared import SharedInformers
from onejob.informers.workqueue import WorkQueue
from onejob.memory_reserve import memory_reserve
from onejob.metrics import Metrics, Plugin, QueueName
from onejob.node.agent.agent import NodeAgent
from onejob.node.agent.capacity import BOUNDLESS, machine_capacity
from onejob.node.logs.keeping import KeptLogs
from onejob.node.options import NodeOptions
from onejob.node.runtime import NodeContext, Runtime
from onejob.node.runtimes import runtime_kind
from onejob.node.setup.environment import CONFIG_MAPS, SECRETS
from onejob.objects.job import Job
from onejob.objects.pod import Pod
from onejob.planning.job.operator_settings import Settings as JobSettings
from onejob.planning.job.operator_settings import is_ours
from onejob.planning.names import TRACKING
from onejob.planning.pod.demand import read_amounts
from onejob.planning.pod.security import Means
from onejob.planning.queue.limits import Limits
from onejob.store.log import LogStore
from onejob.store.writer import Committer
from onejob.trusted_paths import make_trusted_folder, require_own_files
from onejob.wire.kinds import Kind
from onejob.wire.requests import WriteOptions
from onejob.worker_threads import prepare_threads

if TYPE_CHECKING:
    from onejob.api.access.service_accounts.accounts import ServiceAccounts
    from onejob.api.admission.dynamic.activation import Authorize
    from onejob.api.audit.configuration import AuditSettings
    from onejob.api.audit.recorder import Auditor
    from onejob.client.acting import AuthorizedClient
    from onejob.controllers.access import AccessPolicy
    from onejob.controllers.cronjob import CronJobController
    from onejob.controllers.identities import Identities
    from onejob.controllers.job_workloads import JobWorkloads
    from onejob.controllers.node_maintenance import NodeMaintenance
    from onejob.controllers.notify.config import NotifyConfig
    from onejob.controllers.workflow import WorkflowController
    from onejob.node.agent.gangs import GangSource
    from onejob.node.outputs.keeping import OutputKeeper
    from onejob.store.encryption import Cipher
    from onejob.webhooks.calling import WebhookCaller


class Settings(Struct, frozen=True):
    """Start-up settings of a control plane."""

    #: Directory of this control plane's state: database, logs, certificates, supervisor.
    data_dir: Path
    node: NodeOptions = field(default_factory=NodeOptions)
    gates: FeatureGates = field(default_factory=FeatureGates)
    #: Default number of failed Pods that a Job keeps; None means all.
    default_failed_pods_limit: int | None = None
    #: Finalizer of Pods until they are counted; both names are understood whichever is written.
    tracking_finalizer: str = TRACKING
    #: Concurrency limits of Jobs; None leaves the stored limits unchanged.
    queue_limits: Limits | None = None
    #: Time zone of CronJob schedules that name none.
    local_zone: str = "UTC"
    #: Names of the controllers that run: see `controllers/selection.py`.
    controllers: Set[str] = ALL
    #: Whether Pods run here. Without a node, other clients bind Pods and report their status.
    with_node: bool = True
    #: Directories of the host that Pods may mount as volumes; None for all.
    host_paths: tuple[str, ...] | None = None
    #: File of the keys that Secrets are encrypted with; None stores them in the clear.
    encryption_keys: Path | None = None
    #: Audit policy and log; None disables auditing.
    audit: "AuditSettings | None" = None
    #: Notification targets; None disables notifications.
    notify: "NotifyConfig | None" = None
    #: Whether to enable RBAC and service account tokens, for a server that several users and Pods
    #: can reach.
    with_access: bool = False
    #: Host of webhooks behind Services that have no address of their own; "" for none.
    webhook_host: str = ""


class Dependencies(Struct, frozen=True):
    """External dependencies of a control plane: replaced by tests and the simulator."""

    clock: Clock = field(default_factory=SystemClock)
    rng: Random = field(default_factory=lambda: Random(os.urandom(16)))
    #: Executor of commits; None means a dedicated thread.
    committer: Committer | None = None
    #: Factory of the client through which the controllers and the node agent use the API.
    client: Callable[[Service], LocalClient] = LocalClient
    #: The SQLite VFS below the store; None means SQLite's own.
    vfs: str | None = None
    #: Factory of the container runtime; None means the one in the settings.
    runtime: Callable[[NodeContext], Runtime] | None = None


class Front(Struct, frozen=True):
    """Parameters from the API server in front of a control plane; a run has none."""

    #: PEM certificate by which clients verify the server.
    root_ca: str = ""
    #: URL under which Pods will reach it, if known before it listens.
    api_url: str = ""
    auditor: "Auditor | None" = None


_NO_FRONT: Final = Front()


class _Controller(Protocol):
    def run(self) -> Coroutine[Any, Any, None]: ...


@runtime_checkable
class _Queued(Protocol):
    """Controller with work queues, some of it delayed by wall-clock time."""

    @property
    def queues(self) -> Mapping[QueueName, WorkQueue[Any]]: ...

    def clock_jumped(self) -> None: ...


class ControlPlane:
    """Store, API, controllers and node agent in this process, created by `start`.

    Errors:
        `failed` completes if the control plane can no longer be trusted; the process should then
        end and restart from the state on disk. The owner must call `stop` in any case.
    """

    def __init__(
        self,
        settings: Settings,
        dependencies: Dependencies,
        store: LogStore,
        front: Front,
        judge: ReadabilityChecker,
    ) -> None:
        self.settings = settings
        self._judge = judge
        #: URL under which Pods on this machine reach the API server; "" while it does not listen.
        self.api_url = front.api_url
        self.clock = dependencies.clock
        self.store = store
        self.metrics = Metrics()
        traits = runtime_kind(settings.node.runtime).traits
        self.service = Service(
            store,
            clock=dependencies.clock,
            rng=dependencies.rng,
            gates=settings.gates,
            tracking=settings.tracking_finalizer,
            means=Means(
                engine=traits.uses_images,
                root=os.geteuid() == 0,
                runtime=_reported_runtime(settings.node.runtime),
            ),
        )
        self.service.admission.host_paths = settings.host_paths
        self._webhooks: WebhookCaller | None = None
        self.service.converter = self._convert
        self._rng = dependencies.rng
        self.service.admission.dynamic.provide(self._install_dynamic_admission)
        #: The trusted in-process client.
        self.client = dependencies.client(self.service)
        #: Client with strict validation of documents, for manifests written by users.
        self.checked_client = LocalClient(
            self.service, WriteOptions(field_manager="onejob", field_validation="Strict")
        )
        self._identities = self._make_identities(front.auditor) if settings.with_access else None
        #: RBAC policy; None without RBAC.
        self.access = None if self._identities is None else self._identities.access
        #: Client of the API server's own requests.
        self._own_client: LocalClient | AuthorizedClient = (
            self.client if self._identities is None else self._identities.server
        )
        self.informers = SharedInformers(
            self.client if self._identities is None else self._identities.informers,
            known_view=judge.take_view,
        )
        #: Completes, with the reason as its result, when this control plane can no longer be
        #: trusted: the process should end, and restart from the state on disk.
        self.failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._clock_watch = ClockWatch(dependencies.clock)
        self._controllers: list[Coroutine[Any, Any, None]] = [self._clock_watch.run()]
        self._recorders: list[Coroutine[Any, Any, None]] = []
        self._controllers_started = False
        self._controller_tasks: list[asyncio.Task[None]] = []
        self._recorder_tasks: list[asyncio.Task[None]] = []
        self._begun = asyncio.Event()
        #: Whether a Job, by namespace, name and UID, is awaited by another one.
        self._awaits: Callable[[str, str, str], bool] = lambda namespace, name, uid: False
        self._stopping = False
        self.accounts = self._make_accounts() if settings.with_access else None
        self._add_controllers(front.root_ca)
        self._add_mirror(dependencies.rng)
        self._add_notifications()
        if self.access is not None:
            self._add_access(self.access)
        if any(store.count(resource, "") for resource in CONFIGURATIONS):
            self.service.admission.dynamic.install_now()
        self._export_store()
        self._kept_logs: KeptLogs | None = None
        self._outputs: OutputKeeper | None = None
        self._node = self._make_node(dependencies) if settings.with_node else None

    def _webhook_caller(self) -> "WebhookCaller":
        if self._webhooks is None:
            from onejob.webhooks.calling import WebhookCaller

            self._webhooks = WebhookCaller(self.store, self.settings.webhook_host)
        return self._webhooks

    async def _convert(
        self, documents: Sequence[dict[str, Any]], kind: Kind
    ) -> Sequence[dict[str, Any]]:
        from onejob.webhooks.conversion import WebhookConverter

        configuration = self.service.definitions.conversion
        converter = WebhookConverter(self._webhook_caller(), configuration, self._rng)
        return await converter.convert(documents, kind)

    def _install_dynamic_admission(self) -> None:
        from onejob.admission_policies.installing import policy_plugins
        from onejob.controllers.policy_status import PolicyStatus
        from onejob.webhooks.plugins import MutatingWebhooks, ValidatingWebhooks

        caller = self._webhook_caller()
        service = self.service
        authorize = self._authorize_expressions()
        shared = (
            self.store, service.kinds, caller, self._rng, self.metrics, service.converted, authorize
        )  # fmt: skip
        mutating, validating = policy_plugins(service, self.metrics, authorize)
        statuses = PolicyStatus(
            lambda: self._own_client, service.settled, service.kinds, service.schema
        )
        validating.on_policy = statuses.changed
        self._add_controller(statuses.run())
        service.admission.dynamic.install(
            (mutating, MutatingWebhooks(*shared)), (validating, ValidatingWebhooks(*shared))
        )

    def _authorize_expressions(self) -> "Authorize":
        """Return the authorizer of admission expressions; without RBAC, it allows everything."""
        from onejob.admission_policies.authorizing import allow_all, authorize_with
        from onejob.api.access.authorization import RbacAuthorizer

        if self.access is None:
            return allow_all
        return authorize_with(RbacAuthorizer(self.access.policy))

    def _make_identities(self, auditor: "Auditor | None") -> "Identities":
        from onejob.controllers.identities import Identities

        return Identities(self.client, self.service.kinds, self.metrics, auditor)

    def _make_accounts(self) -> "ServiceAccounts":
        from onejob.api.access.service_accounts.accounts import ServiceAccounts
        from onejob.api.access.service_accounts.signing_keys import KEYS_FILE
        from onejob.api.admission.pod_accounts import PodAccounts

        self.service.admission.accounts = PodAccounts(self.store)
        keys = self.settings.data_dir / "pki" / KEYS_FILE
        return ServiceAccounts(keys, self.store, self.clock, lambda: self.api_url)

    @property
    def node(self) -> NodeAgent:
        """The node agent. Raises LookupError without a node: see `Settings.with_node`."""
        if self._node is None:
            raise LookupError("this control plane has no node")
        return self._node

    def _make_node(self, dependencies: Dependencies) -> NodeAgent:
        settings = self.settings
        options, kind = settings.node, runtime_kind(settings.node.runtime)
        node_name = options.name or socket.gethostname().lower()
        default = BOUNDLESS if kind.traits.boundless else machine_capacity()
        capacity = {**default, **read_amounts(options.capacity)}
        services = self.informers.services.cache
        context = NodeContext(
            node_name,
            "127.0.0.1",
            capacity,
            lambda name: tuple(services.find("namespace", name)),
            issues_tokens=self.accounts is not None,
            api_server=lambda: self.api_url,
            host_paths=self.service.admission.host_paths_of,
            on_outputs=self._outputs_opened,
        )
        make = partial(kind.make, options, settings.data_dir, dependencies.clock)
        if options.kept_logs is not None and kind.traits.runs_programs:
            self._kept_logs = KeptLogs(settings.data_dir, dependencies.clock, options.kept_logs)
            # Before the node agent receives the change, and removes the Pod's files.
            self.informers.pods.on_change(self._kept_logs.pods_changed)
        identities = self._identities
        client = self.client if identities is None else identities.node(node_name)
        if kind.traits.on_host:
            self._node_client = client
            if (settings.data_dir / "outputs").exists():
                self._outputs = self._make_output_keeper()
                self._outputs.inherit()
            self.informers.pods.on_change(self._output_pods_changed)
        node = NodeAgent(
            client,
            self.informers.pods,
            (dependencies.runtime or make)(context),
            node_name=node_name,
            clock=dependencies.clock,
            rng=dependencies.rng,
            capacity=capacity,
            sources=[self.informers.metadata(name) for name in (CONFIG_MAPS, SECRETS)],
            issue_token=None if self.accounts is None else self.accounts.issue_for_pod,
            gangs=self._make_gangs(),
        )
        self._clock_watch.on_jump(node.clock_jumped)
        self.service.admission.room = node.room
        return node

    def _make_gangs(self) -> "GangSource | None":
        if not self.settings.gates.enabled("GenericWorkload"):
            return None
        from onejob.node.agent.gangs import GangSource

        return GangSource(self._own_client)

    def _make_output_keeper(self) -> "OutputKeeper":
        """Return the keeper of outputs. Imported on use: most servers have no outputs."""
        from onejob.node.outputs.keeping import OutputKeeper

        settings = self.settings
        return OutputKeeper(settings.data_dir, self.clock, settings.node.outputs, self._node_client)

    def _outputs_opened(self, namespace: str, name: str, uid: str) -> None:
        if self._outputs is None:
            self._outputs = self._make_output_keeper()
            if self._begun.is_set():
                self._outputs.start()
        self._outputs.opened(namespace, name, uid)

    def _output_pods_changed(self, deltas: Sequence[Delta[Pod]]) -> None:
        if self._outputs is not None:
            self._outputs.pods_changed(deltas)

    def _add_controllers(self, root_ca: str) -> None:
        client, informers, clock, metrics = (
            self._own_client,
            self.informers,
            self.clock,
            self.metrics,
        )
        gates, acting = self.settings.gates, self._acting_client
        job_settings = self._job_settings()
        # Before the Job controller, whose Jobs they admit.
        gates_of_jobs: list[StartGate] = []
        runs_here = partial(is_ours, settings=job_settings)
        if JOB in self.settings.controllers:
            dependencies = self._make_dependency_gate(runs_here)
            gates_of_jobs.append(dependencies)
            self._controllers.append(dependencies.run())
            if QUEUE in self.settings.controllers:
                queue = QueueController(
                    self._controller_context(QUEUE),
                    # A Job enters the queue once its dependencies are met.
                    is_ours=lambda job: runs_here(job) and not dependencies.waits(job),
                )
                gates_of_jobs.append(queue)
                self._controllers.append(queue.run())
        makers: dict[str, Callable[[], _Controller]] = {
            JOB: lambda: JobController(
                self._controller_context(JOB),
                settings=job_settings,
                new_series=lambda: self._new_series(JOB),
                gate=AllGates(gates_of_jobs),
                maintenance=self._add_node_maintenance(),
                workloads=self._make_job_workloads(),
            ),
            CRONJOB: self._make_cronjob_controller,
            TTL: lambda: TtlController(
                acting(TTL),
                informers,
                clock=clock,
                metrics=metrics,
                gates=gates,
                kinds=self.service.kinds,
                recorder=self._controller_context(TTL).recorder,
                workflows=gates.enabled("TTLAfterFinished"),
            ),
            GARBAGE: lambda: GarbageCollector(
                self._controller_context(GARBAGE), self.service.kinds
            ),
            POD_GARBAGE: lambda: PodGarbageCollector(
                acting(POD_GARBAGE), informers, clock=clock, metrics=metrics
            ),
            NAMESPACE: lambda: NamespaceController(
                acting(NAMESPACE), informers, clock=clock, root_ca=root_ca, kinds=self.service.kinds
            ),
            PENDING: lambda: PendingDeadlines(self._controller_context(PENDING)),
            QUOTA: self._make_quota_controller,
            DISRUPTION: self._make_disruption_controller,
            WORKFLOW: self._make_workflow_controller,
            CRONWORKFLOW: self._make_cronworkflow_controller,
        }
        running = [make() for name, make in makers.items() if name in self.settings.controllers]
        # In Kubernetes the API server itself expires Events, so this controller cannot be
        # deselected.
        expiry = EventExpiry(client, clock=clock)
        queued = [part for part in running if isinstance(part, _Queued)]
        self._clock_watch.on_jump(expiry.clock_jumped)
        for part in queued:
            self._clock_watch.on_jump(part.clock_jumped)
        export_queues(metrics, lambda: [controller.queues for controller in queued])
        denied = self.service.admission.denied
        metrics.admission_denied.read_each(
            lambda: {Plugin(plugin=plugin): count for plugin, count in denied.items()}
        )
        definitions = DefinitionController(client, lambda: self.service.definitions, clock=clock)
        self._controllers += [
            part.run() for part in (*running, expiry, definitions, definitions.informer)
        ]
        self._controllers.append(expiry.follow())

    def _make_dependency_gate(self, runs_here: Callable[[Job], bool]) -> DependencyGate:
        gate = DependencyGate(
            self._controller_context(JOB),
            is_ours=runs_here,
            recorded_end=lambda *job: self.service.history.end_of(*job),
        )
        self._awaits = gate.awaits
        return gate

    # Imported on use: a run has none of these controllers.

    def _new_series(self, controller: str) -> WriteSeries:
        client = self._acting_client(controller)
        # A write that waits for a policy or webhook cannot be staged with others.
        if self.service.admission.dynamic.active:
            return DurableWrites(client)
        return StagedWrites(client)

    def _make_cronjob_controller(self) -> _Controller:
        from onejob.controllers.cronjob import CronJobController

        context = self._controller_context(CRONJOB)
        return CronJobController(
            context,
            local_zone=self.settings.local_zone,
            new_series=lambda: self._new_series(CRONJOB),
            shows_next_slot=self.settings.gates.enabled("CronJobsNextScheduleTime"),
        )

    def _add_node_maintenance(self) -> "NodeMaintenance | None":
        if not self.settings.gates.enabled("JobPodReplacementOnNodeMaintenance"):
            return None
        from onejob.controllers.node_maintenance import NodeMaintenance

        maintenance = NodeMaintenance(self._own_client, self.informers.pods)
        self._controllers.append(maintenance.run())
        return maintenance

    def _make_job_workloads(self) -> "JobWorkloads | None":
        if not self.settings.gates.enabled("WorkloadWithJob"):
            return None
        from onejob.controllers.job_workloads import JobWorkloads

        return JobWorkloads(self._own_client, self._controller_context(JOB).recorder)

    def _make_workflow_controller(self) -> _Controller:
        from onejob.controllers.on_demand import OnDemand

        context = self._controller_context(WORKFLOW)

        def make() -> "WorkflowController":
            from onejob.controllers.workflow import WorkflowController

            return WorkflowController(context, new_series=lambda: self._new_series(WORKFLOW))

        return OnDemand(self.informers.workflows, make)

    def _make_cronworkflow_controller(self) -> _Controller:
        from onejob.controllers.on_demand import OnDemand

        context = self._controller_context(CRONWORKFLOW)

        def make() -> "CronJobController":
            from onejob.controllers.cronjob import CronJobController
            from onejob.objects.workflow import CRONWORKFLOW as KIND

            return CronJobController(
                context,
                local_zone=self.settings.local_zone,
                new_series=lambda: self._new_series(CRONWORKFLOW),
                kind=KIND,
            )

        return OnDemand(self.informers.cronworkflows, make)

    def _make_quota_controller(self) -> _Controller:
        from onejob.controllers.quotas import QuotaController

        client, quotas = self._acting_client(QUOTA), self.service.admission.quotas
        return QuotaController(client, quotas, clock=self.clock)

    def _make_disruption_controller(self) -> _Controller:
        from onejob.controllers.disruption import DisruptionController

        return DisruptionController(self._controller_context(DISRUPTION), self.service.kinds)

    def _add_access(self, access: "AccessPolicy") -> None:
        from onejob.controllers.access import ClusterRoleAggregation
        from onejob.planning.rbac.policy import CLUSTER_ROLES as CLUSTER_ROLE_RESOURCE

        if CLUSTER_ROLES in self.settings.controllers:
            roles = access.informers[CLUSTER_ROLE_RESOURCE]
            self._controllers.append(
                ClusterRoleAggregation(self._acting_client(CLUSTER_ROLES), roles).run()
            )

    def _job_settings(self) -> JobSettings:
        return JobSettings.under(
            self.settings.gates,
            tracking_finalizer=self.settings.tracking_finalizer,
            default_failed_pods_limit=self.settings.default_failed_pods_limit,
        )

    def _add_mirror(self, rng: Random) -> None:
        """Add the mirror controller.

        Not without the gate JobManagedBy: then the Job controller handles all Jobs, also mirrored
        ones.
        """
        chosen = MIRROR in self.settings.controllers
        if chosen and self.settings.gates.enabled("JobManagedBy"):
            mirror = MirrorOnDemand(
                self._acting_client(MIRROR),
                self.informers,
                clock=self.clock,
                connect=http_connection(rng),
            )
            self._controllers.append(mirror.run())

    def _add_notifications(self) -> None:
        if self.settings.notify is None or NOTIFICATION not in self.settings.controllers:
            return
        from onejob.controllers.notify.controller import Notifications

        notifications = Notifications(
            self._controller_context(NOTIFICATION),
            self.settings.notify,
            self.settings.data_dir,
            local_zone=self.settings.local_zone,
        )
        self._clock_watch.on_jump(notifications.clock_jumped)
        self._controllers.append(notifications.run())

    def _export_store(self) -> None:
        store, metrics = self.store, self.metrics
        metrics.store_revision.read(lambda: store.revision)
        metrics.damaged_documents.read(lambda: len(store.damaged))
        metrics.store_commits.read(lambda: store.commits)
        metrics.store_writes.read(lambda: store.writes)

    def _controller_context(self, component: str) -> ControllerContext:
        client = self._acting_client(component)
        recorder = EventRecorder(client, component, self.clock)
        self._recorders.append(recorder.run())
        return ControllerContext(client, self.informers, recorder, self.clock, self.metrics)

    def _acting_client(self, name: str) -> "LocalClient | AuthorizedClient":
        """Return the client with a controller's permissions, if RBAC is enabled."""
        return self.client if self._identities is None else self._identities.controller(name)

    @classmethod
    async def start(
        cls,
        settings: Settings,
        dependencies: Dependencies | None = None,
        front: Front = _NO_FRONT,
    ) -> Self:
        """Start a control plane and return once everything is running.

        Raises CannotOpen, NotTrusted, BadKeys or RuntimeUnavailable, with a one-line message.
        """
        plane = await cls.open(settings, dependencies, front)
        try:
            await plane.begin()
        except BaseException:
            await plane.stop()
            raise
        return plane

    @classmethod
    async def open(
        cls,
        settings: Settings,
        dependencies: Dependencies | None = None,
        front: Front = _NO_FRONT,
    ) -> Self:
        """Open a control plane whose API is usable when this returns; `begin` starts the rest.

        The controllers and the node, which start with `begin`, will not miss any write made from
        now on. With thousands of finished objects, it takes much longer until they have loaded them
        all.

        Raises:
            CannotOpen, NotTrusted, BadKeys: with a one-line message.
        """
        dependencies = dependencies or Dependencies()
        prepare_data_dir(settings.data_dir)
        judge = ReadabilityChecker()
        store = await LogStore.open(
            settings.data_dir / "onejob.db",
            clock=dependencies.clock,
            committer=dependencies.committer,
            vfs=dependencies.vfs,
            is_readable=judge.is_readable,
            cipher=_cipher(settings),
        )
        try:
            plane = cls(settings, dependencies, store, front, judge)
        except BaseException:
            await store.close()
            raise
        try:
            await plane._open()
        except BaseException:
            await plane.stop()
            raise
        return plane

    async def _open(self) -> None:
        await prepare_threads()
        if self._node is not None:
            self._node.prepare()
        self.service.install_definitions()
        await bootstrap(self._own_client)
        if self.settings.with_access:
            from onejob.controllers.access import bootstrap_roles

            await bootstrap_roles(self._own_client)
        if self.settings.queue_limits is not None:
            await write_limits(self._own_client, self.settings.queue_limits)
        asyncio.get_running_loop().set_exception_handler(self._callback_failed)
        self.store.failed.add_done_callback(lambda failed: self._fail(str(failed.result())))
        if self.access is not None:
            informers = self.access.informers.values()
            self._controller_tasks = [asyncio.create_task(one.run()) for one in informers]
        self._judge.keep_views(True)
        await self.informers.begin()

    async def begin(self) -> None:
        """Start the controllers and the node, and wait until their caches are complete.

        Raises RuntimeUnavailable. After any failure the caller must call `stop`.
        """
        await self.informers.start()
        self._judge.keep_views(False)
        self.service.awaits_end = self._awaits
        parts, self._controllers = self._controllers, []
        self._controllers_started = True
        self._controller_tasks += [asyncio.create_task(part) for part in parts]
        parts, self._recorders = self._recorders, []
        self._recorder_tasks = [asyncio.create_task(part) for part in parts]
        own = [*self._controller_tasks, *self._recorder_tasks]
        if self._node is not None:
            await self._node.start()
            own += self._node.tasks
        if self._kept_logs is not None:
            self._kept_logs.start()
        if self._outputs is not None:
            self._outputs.start()
        self.informers.on_task(lambda task: task.add_done_callback(self._part_ended))
        for task in own:
            task.add_done_callback(self._part_ended)
        self._begun.set()

    def _add_controller(self, part: Coroutine[Any, Any, None]) -> None:
        """Run a controller from now on, or from the start of all others."""
        if not self._controllers_started:
            self._controllers.append(part)
            return
        task = asyncio.create_task(part)
        task.add_done_callback(self._part_ended)
        self._controller_tasks.append(task)

    async def begun(self) -> None:
        """Wait until everything is running."""
        await self._begun.wait()

    def _part_ended(self, task: asyncio.Task[None]) -> None:
        """Fail the control plane if a component ends before `stop`, which is a bug."""
        if not task.cancelled() and not self._stopping:
            self._fail(f"{task.get_coro()} ended: {task.exception()!r}")

    def _callback_failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Fail the control plane if a callback raised.

        The callback has left its work unfinished: restarting from the state on disk is better than
        hanging. Connection errors are not callbacks, and a connection that ends for want of memory
        leaves no work unfinished.
        """
        out_of_memory = isinstance(context.get("exception"), MemoryError)
        if out_of_memory:
            memory_reserve.spend()
        loop.default_exception_handler(context)
        if "handle" in context and not (out_of_memory and _is_of_transport(context["handle"])):
            self._fail(f"{context['handle']}: {context.get('exception')!r}")

    def _fail(self, why: str) -> None:
        if not self.failed.done():
            self.failed.set_result(why)

    async def stop(self) -> None:
        """Stop in order: node agent (with its Pods, if they end with us), controllers, store.

        Pods killed with the control plane do not end by themselves: running controllers would count
        them as failures and replace them, so in that case the controllers stop first.
        """
        self._stopping = True
        for part in (*self._controllers, *self._recorders):
            # It was never started.
            part.close()
        if self.settings.node.pods_end_with_server:
            await _cancel(self._controller_tasks)
        if self._node is not None:
            await self._node.stop(end_pods=self.settings.node.pods_end_with_server)
        await _cancel([*self._controller_tasks, *self._recorder_tasks])
        await self.informers.stop()
        if self._kept_logs is not None:
            await self._kept_logs.close()
        if self._outputs is not None:
            await self._outputs.close()
        if self._webhooks is not None:
            await self._webhooks.close()
        await self.store.close()


def _reported_runtime(name: str) -> Literal["process", "podman", ""]:
    """Return the runtime whose missing effects clients are warned of; simulated Pods have none."""
    match name:
        case "process" | "podman":
            return name
        case _:
            return ""


def _is_of_transport(handle: object) -> bool:
    """Return whether a callback is one of uvloop's own for a connection."""
    return repr(handle).startswith(("<Handle UVTransport", "<Handle TCPTransport", "<Handle SSL"))


def _cipher(settings: Settings) -> "Cipher | None":
    """Return the cipher for Secrets, or None without keys. Raises CannotOpen."""
    if settings.encryption_keys is None:
        return None
    from onejob.store.encryption import read_key_file

    return read_key_file(settings.encryption_keys)


def prepare_data_dir(folder: Path) -> None:
    """Create the data directory, or check the ownership of its files.

    All files that control this server must belong to its user; files of Pods may belong to the
    users that they run as. Raises NotTrusted.
    """
    make_trusted_folder(folder)
    require_own_files(folder, below=("pki", "supervisor"))


async def _cancel(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
