"""`onejob serve`: a control plane behind HTTPS, with its own CA and an admin kubeconfig."""

from collections.abc import AsyncIterator
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING, TypedDict

from msgspec.structs import replace

from onejob.api.access.admin_token import TOKEN_FILE, AdminTokenAuthenticator, admin_token
from onejob.api.access.authentication import AnyOf, CertificateAuthenticator
from onejob.api.access.authorization import Authorizer, RbacAuthorizer
from onejob.api.access.certificates import ensure_certificates, server_names
from onejob.api.access.escalation import EscalationCheck
from onejob.api.access.kubeconfig_writer import write_kubeconfig
from onejob.api.access.tls_files import TlsFiles
from onejob.api.access.users import USERS_FILE, UserTokenAuthenticator
from onejob.api.http.app import ApiApp
from onejob.api.http.serving import ApiServer, local_url
from onejob.api.schema.openapi import OpenApiDocuments
from onejob.controllers.mirror.pod_sources import PodLogs, Ports
from onejob.controllers.mirror.pod_sources import Sessions as PodSessionSource
from onejob.dashboard.files import Files
from onejob.dashboard.pages import DashboardPages
from onejob.dashboard.sessions import Sessions
from onejob.dashboard.summaries import Summaries
from onejob.node.agent.agent import NodeAgent
from onejob.node.process.usage_meter import UsageMeter
from onejob.node.sessions.pod_ports import PodPorts
from onejob.node.sessions.pod_sessions import PodSessions
from onejob.server import ControlPlane, Settings, World, prepare_data_dir
from onejob.wire.requests import LogOptions

if TYPE_CHECKING:
    from onejob.api.audit.recorder import Auditor


class HttpsServer:
    """Made by `start`; `stop` ends it within a second, open watches or not."""

    def __init__(
        self,
        plane: ControlPlane,
        listener: ApiServer,
        kubeconfig: Path,
        auditor: "Auditor | None" = None,
    ) -> None:
        self.plane = plane
        self._auditor = auditor
        self.kubeconfig = kubeconfig
        self._listener = listener

    @classmethod
    async def start(
        cls,
        settings: Settings,
        *,
        host: str,
        port: int,
        kubeconfig: Path,
        world: World | None = None,
        tls_files: TlsFiles | None = None,
    ) -> "HttpsServer":
        """Listening when this returns. Raises CannotOpen, NotTrusted, BadAuthority, BadTlsFile,
        BadKeys, CannotAudit, RuntimeUnavailable or CannotListen with one clear line."""
        world = world or World()
        auditor = _auditor(settings, world)
        prepare_data_dir(settings.data_dir)
        certificates = ensure_certificates(
            settings.data_dir / "pki", server_names(host), world.clock.now()
        )
        tls_files = tls_files or TlsFiles()
        tls = tls_files.server_context(certificates)
        authority = tls_files.trusted_by_clients(certificates)
        settings = replace(settings, with_access=True)
        plane = await ControlPlane.start(
            settings,
            world,
            root_ca=authority.decode(),
            api_url=local_url(host, port) if port else "",
        )
        assert plane.access is not None
        assert plane.accounts is not None
        try:
            await plane.access.synced()
            authorizer = RbacAuthorizer(plane.access.policy)
            check = EscalationCheck(plane.access.policy, authorizer)
            plane.service.guards.update(dict.fromkeys(EscalationCheck.resources, check))
            token_file = settings.data_dir / TOKEN_FILE
            token = admin_token(token_file)
            sources = _pod_sources(plane)
            app = ApiApp(
                plane.service,
                authenticator=AnyOf(
                    [
                        CertificateAuthenticator(),
                        AdminTokenAuthenticator(token_file),
                        UserTokenAuthenticator(settings.data_dir / USERS_FILE, world.clock),
                        plane.accounts.authenticator,
                    ]
                ),
                authorizer=authorizer,
                openapi=OpenApiDocuments(plane.service.schema, plane.service.kinds),
                release=plane.service.schema.release,
                rng=SystemRandom(),
                metrics=plane.metrics,
                accounts=plane.accounts,
                auditor=auditor,
                dashboard=_dashboard(plane, authorizer, sources["logs"]),
                **sources,
            )
            listener = ApiServer(app, host=host, port=port, tls=tls, clock=world.clock)
            await listener.start()
            plane.api_url = listener.url
        except BaseException:
            await plane.stop()
            raise
        write_kubeconfig(kubeconfig, server=listener.url, authority=authority, token=token)
        if auditor is not None:
            _export_audit(plane, auditor)
        return cls(plane, listener, kubeconfig, auditor)

    @property
    def url(self) -> str:
        return self._listener.url

    async def stop(self) -> None:
        await self._listener.stop()
        await self.plane.stop()
        if self._auditor is not None:
            self._auditor.log.stop()


def _auditor(settings: Settings, world: World) -> "Auditor | None":
    """Most servers have none and never import this. Raises CannotAudit."""
    chosen = settings.audit
    if chosen is None:
        return None
    from onejob.api.audit.log_file import AuditLog
    from onejob.api.audit.recorder import Auditor, load_policy

    policy = load_policy(chosen.policy_file)
    log = AuditLog(chosen.log_path, chosen.rotation, world.clock.now)
    return Auditor(policy, log, world.clock.now, SystemRandom())


def _export_audit(plane: ControlPlane, auditor: "Auditor") -> None:
    log = auditor.log
    plane.metrics.read("apiserver_audit_event_total", lambda: {(): log.written})
    plane.metrics.read("apiserver_audit_error_total", lambda: {("log",): log.dropped})


def _dashboard(plane: ControlPlane, authorizer: Authorizer, logs: PodLogs) -> DashboardPages:
    summaries = Summaries(
        plane.client,
        plane.store,
        plane.informers.pods.cache,
        plane.clock,
        plane.settings.local_zone,
    )
    return DashboardPages(Sessions(plane.clock), authorizer, summaries, Files(), logs)


class _PodSources(TypedDict, total=False):
    logs: PodLogs
    sessions: PodSessionSource
    ports: Ports
    usage: UsageMeter


def _pod_sources(plane: ControlPlane) -> _PodSources:
    """What only those who run Pods know of them: logs, processes, ports, use of the machine."""
    client = plane.client
    if not plane.settings.with_node:
        return {
            "logs": PodLogs(None, client),
            "sessions": PodSessionSource(None, client),
            "ports": Ports(None, client),
        }
    node = plane.node
    return {
        "logs": PodLogs(_NodeLogs(node), client),
        "sessions": PodSessionSource(PodSessions(node, client), client),
        "ports": Ports(PodPorts(node.runtime, client), client),
        "usage": UsageMeter(node.runtime, node.node_name, plane.clock),
    }


class _NodeLogs:
    """The node agent as the API's source of logs."""

    def __init__(self, node: NodeAgent) -> None:
        self._node = node

    async def logs(
        self, namespace: str, name: str, container: str, options: LogOptions
    ) -> AsyncIterator[bytes]:
        return self._node.logs(namespace, name, container, options)
