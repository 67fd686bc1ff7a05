"""`onejob serve`: a control plane behind HTTPS, with its own CA and an admin kubeconfig."""

import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING

from msgspec.structs import replace

from onejob import own_process, tracing
from onejob.api.access.admin_token import TOKEN_FILE, AdminTokenAuthenticator, admin_token
from onejob.api.access.authentication import (
    ADMIN,
    AuthenticatorChain,
    CertificateAuthenticator,
    Credentials,
)
from onejob.api.access.authorization import Authorizer, RbacAuthorizer
from onejob.api.access.certificate_requests import CERTIFICATE_REQUESTS, CertificateRequests
from onejob.api.access.certificates import ensure_certificates, server_names
from onejob.api.access.escalation import EscalationCheck
from onejob.api.access.kubeconfig_writer import write_kubeconfig
from onejob.api.access.param_access import ParamAccess
from onejob.api.access.tls_files import TlsFiles
from onejob.api.access.users import USERS_FILE, UserTokenAuthenticator
from onejob.api.http.app import Access, ApiApp, PodSources
from onejob.api.http.server_pages import ServerPages
from onejob.api.http.serving import ApiServer, local_url
from onejob.api.schema.openapi import OpenApiDocuments
from onejob.api.sessions.pod_streams import ExecRequest, ExecStreams
from onejob.api.sessions.port_forwarding import Connection
from onejob.api.usage import Measurement
from onejob.control_plane import ControlPlane, Dependencies, Front, Settings, prepare_data_dir
from onejob.controllers.mirror.pod_sources import PodLogs, Ports
from onejob.controllers.mirror.pod_sources import Sessions as PodSessionSource
from onejob.dashboard.on_demand import DashboardOnDemand
from onejob.dashboard.sessions import Sessions
from onejob.metrics import AuditBackend, PodPhase
from onejob.node.outputs.serving import OutputFiles
from onejob.node.process.usage_meter import UsageMeter
from onejob.node.sessions.pod_ports import PodPorts
from onejob.node.sessions.pod_sessions import PodSessions
from onejob.wire.requests import LogOptions

if TYPE_CHECKING:
    from onejob.api.audit.recorder import Auditor
    from onejob.dashboard.pages import DashboardPages


class HttpsServer:
    """Running server, created by `start`.

    `stop` ends it within a second, also with open watches.
    """

    def __init__(
        self,
        plane: ControlPlane,
        listener: ApiServer[ApiApp],
        kubeconfig: Path,
        sessions: Sessions,
        dashboard: DashboardOnDemand,
        auditor: "Auditor | None" = None,
    ) -> None:
        self.plane = plane
        self._sessions = sessions
        self._dashboard = dashboard
        self._auditor = auditor
        self.kubeconfig = kubeconfig
        self.listener = listener

    @classmethod
    async def start(
        cls,
        settings: Settings,
        *,
        host: str,
        port: int,
        kubeconfig: Path,
        dependencies: Dependencies | None = None,
        tls_files: TlsFiles | None = None,
        pki: Path | None = None,
    ) -> "HttpsServer":
        """Start a server and return once everything is running.

        It listens, and the kubeconfig is written, as soon as requests can be answered: the
        controllers need not have loaded objects that finished long ago. `pki` is the directory of
        the certificate authority, if it is not in the data directory.

        Raises:
            CannotOpen, NotTrusted, BadAuthority, BadTlsFile, BadKeys, CannotAudit,
            RuntimeUnavailable, CannotListen: with a one-line message.
        """
        dependencies = dependencies or Dependencies()
        auditor = _auditor(settings, dependencies)
        prepare_data_dir(settings.data_dir)
        own_pki = settings.data_dir / "pki"
        # The keys of service accounts are there in any case.
        own_pki.mkdir(mode=0o700, exist_ok=True)
        certificates = ensure_certificates(
            pki or own_pki, server_names(host), dependencies.clock.now()
        )
        tls_files = tls_files or TlsFiles()
        tls = tls_files.server_context(certificates)
        authority = tls_files.trusted_by_clients(certificates)
        settings = replace(settings, with_access=True)
        plane = await ControlPlane.open(
            settings,
            dependencies,
            Front(
                authority.decode(), local_url(host, port) if port else "", auditor, pki or own_pki
            ),
        )
        assert plane.access is not None
        assert plane.accounts is not None
        listener: ApiServer[ApiApp] | None = None
        try:
            await plane.access.synced()
            authorizer = RbacAuthorizer(plane.access.policy)
            check = EscalationCheck(plane.access.policy, authorizer)
            plane.service.guards.update(dict.fromkeys(EscalationCheck.resources, check))
            params = ParamAccess(plane.store, plane.service.kinds, authorizer)
            plane.service.guards.update(dict.fromkeys(ParamAccess.resources, params))
            plane.service.guards[CERTIFICATE_REQUESTS] = CertificateRequests(
                authorizer, dependencies.clock.now
            )
            token_file = settings.data_dir / TOKEN_FILE
            token = admin_token(token_file)
            authenticator = AuthenticatorChain(
                [
                    CertificateAuthenticator(dependencies.clock),
                    AdminTokenAuthenticator(token_file),
                    UserTokenAuthenticator(settings.data_dir / USERS_FILE, dependencies.clock),
                    plane.accounts.authenticator,
                ]
            )
            pods = _pod_sources(plane)
            sessions = Sessions(dependencies.clock)
            dashboard = DashboardOnDemand(
                lambda: _dashboard(plane, sessions, authorizer, pods), plane.begun
            )
            app = ApiApp(
                plane.service,
                access=Access(authenticator, authorizer, plane.accounts.requests),
                pages=ServerPages(
                    plane.service.schema.release,
                    OpenApiDocuments(plane.service.schema, plane.service.kinds),
                    plane.metrics,
                    accounts=plane.accounts,
                ),
                pods=pods,
                rng=SystemRandom(),
                metrics=plane.metrics,
                auditor=auditor,
                dashboard=dashboard,
            )
            listener = ApiServer(app, host=host, port=port, tls=tls, clock=dependencies.clock)
            await listener.start()
            plane.api_url = listener.url
            _export_process(plane)
            if auditor is not None:
                _export_audit(plane, auditor)
            write_kubeconfig(kubeconfig, server=listener.url, authority=authority, token=token)
            await plane.begin()
        except BaseException:
            if listener is not None:
                await listener.stop()
            await plane.stop()
            raise
        if (tracer := tracing.current()) is not None:
            from onejob.controllers.traces import CompletionTracer

            CompletionTracer(tracer, plane.informers)
        return cls(plane, listener, kubeconfig, sessions, dashboard, auditor)

    @property
    def url(self) -> str:
        return self.listener.url

    def sign_in_address(self, seconds: float) -> str:
        """Return a URL that opens the dashboard as the admin, once, within `seconds`."""
        token = admin_token(self.plane.settings.data_dir / TOKEN_FILE)
        code = self._sessions.new_code(ADMIN.name, Credentials(token), seconds)
        return f"{self.url}/ui/#/sign-in/{code}"

    async def stop(self) -> None:
        await self.listener.stop()
        await self._dashboard.stop()
        await self.plane.stop()
        if self._auditor is not None:
            self._auditor.log.stop()


def _auditor(settings: Settings, dependencies: Dependencies) -> "Auditor | None":
    """Return the auditor, or None without an audit policy, in which case nothing is imported.

    Raises CannotAudit.
    """
    chosen = settings.audit
    if chosen is None:
        return None
    from onejob.api.audit.log_file import AuditLog
    from onejob.api.audit.recorder import Auditor, load_policy

    policy = load_policy(chosen.policy_file)
    log = AuditLog(chosen.log_path, chosen.rotation, dependencies.clock.now)
    return Auditor(policy, log, dependencies.clock.now, SystemRandom())


def _export_process(plane: ControlPlane) -> None:
    metrics, pods = plane.metrics, plane.informers.pods.cache
    metrics.process_cpu.read(time.process_time)
    metrics.process_memory.read(own_process.resident_bytes)
    metrics.process_open_fds.read(own_process.open_descriptors)
    metrics.process_max_fds.read(own_process.descriptor_limit)

    def pods_by_phase() -> dict[PodPhase, int]:
        # Excludes ended Pods, which the cache keeps until they are counted.
        phases = Counter(pod.status.phase for pod in pods if not pod.terminal)
        return {PodPhase(phase=phase): count for phase, count in phases.items()}

    metrics.pods.read_each(pods_by_phase)


def _export_audit(plane: ControlPlane, auditor: "Auditor") -> None:
    log = auditor.log
    plane.metrics.audit_events.read(lambda: log.written)
    plane.metrics.audit_errors.read_each(lambda: {AuditBackend(plugin="log"): log.dropped})


def _dashboard(
    plane: ControlPlane, sessions: Sessions, authorizer: Authorizer, pods: PodSources
) -> "DashboardPages":
    from onejob.dashboard.files import Files
    from onejob.dashboard.pages import DashboardPages
    from onejob.dashboard.readers import readers_of

    assert pods.logs is not None, "every server has logs"
    readers = readers_of(
        plane.client,
        plane.store,
        plane.informers.pods.cache,
        plane.clock,
        plane.settings.local_zone,
        logs=pods.logs,
        usage=pods.usage,
        deleted_pods=plane.service.history.deleted_pods,
        progress=OutputFiles(plane.settings.data_dir).progress,
    )
    return DashboardPages(sessions, authorizer, readers, Files(), pods.logs)


def _pod_sources(plane: ControlPlane) -> PodSources:
    here = _Node(plane) if plane.settings.with_node else None
    client = plane.client
    return PodSources(
        logs=PodLogs(here, client),
        outputs=OutputFiles(plane.settings.data_dir),
        sessions=PodSessionSource(here, client),
        ports=Ports(here, client),
        usage=here,
    )


class _Node:
    """The node as the API's source of logs, sessions, ports and resource usage.

    Requests wait until the node has taken over running Pods.
    """

    def __init__(self, plane: ControlPlane) -> None:
        node = plane.node
        self._node = node
        self._begun = plane.begun
        self._sessions = PodSessions(node, plane.client)
        self._ports = PodPorts(node.runtime, plane.client)
        self._usage = UsageMeter(node.runtime, node.node_name, plane.clock)

    async def logs(
        self, namespace: str, name: str, container: str, options: LogOptions
    ) -> AsyncIterator[bytes]:
        await self._begun()
        return self._node.logs(namespace, name, container, options)

    async def exec(self, request: ExecRequest, streams: ExecStreams) -> int:
        await self._begun()
        return await self._sessions.exec(request, streams)

    async def connect(self, namespace: str, name: str, port: int) -> Connection:
        await self._begun()
        return await self._ports.connect(namespace, name, port)

    async def pods(self) -> Mapping[str, Measurement]:
        await self._begun()
        return await self._usage.pods()

    async def node(self) -> Measurement | None:
        await self._begun()
        return await self._usage.node()
