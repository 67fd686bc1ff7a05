"""The API as an application: a request passes the stages, and becomes a response.

`ApiApp` has the order of the stages; `onejob.api.http.stages` has their contract.

Errors:
    Every failure is a `Status` document. Unexpected exceptions are logged and answered with 500.
"""

from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from onejob.api.access.authentication import ANONYMOUS, Authenticator
from onejob.api.access.authorization import Authorizer
from onejob.api.access.service_accounts.token_requests import TokenRequests
from onejob.api.decoding.query import parse_query
from onejob.api.http.dashboard import Dashboard
from onejob.api.http.endpoints import Endpoints
from onejob.api.http.fairness import FairQueue
from onejob.api.http.long_running import LongRunningRequests
from onejob.api.http.operations import operation_of
from onejob.api.http.progress import Progress
from onejob.api.http.requests import ClientGone, Request, UserRequest
from onejob.api.http.responses import Response, error_response, text_response
from onejob.api.http.routing import PageMethodNotAllowed, PageNotFound, Router
from onejob.api.http.server_pages import DiscoveryPages, ServerPages
from onejob.api.http.stages.auditing import Auditing, record_end, record_response
from onejob.api.http.stages.authentication import Authentication
from onejob.api.http.stages.authorization import Authorization
from onejob.api.http.stages.cross_site import require_same_site
from onejob.api.http.stages.encoding import encoded
from onejob.api.http.stages.execution import Execution
from onejob.api.http.stages.flow_control import FlowControl
from onejob.api.http.stages.observation import Observation
from onejob.api.request_ids import RequestIds
from onejob.api.service import Service
from onejob.api.sessions.pod_streams import ExecSource, LogSource
from onejob.api.sessions.port_forwarding import PortSource
from onejob.api.sessions.upgrades import Upgrades
from onejob.api.unreadable import storage_read_error
from onejob.api.usage import UsageSource
from onejob.memory_reserve import memory_reserve
from onejob.metrics import Metrics
from onejob.store.base import DamagedDocument
from onejob.wire.errors import ApiError, InternalError, out_of_memory

if TYPE_CHECKING:
    import asyncio

    from onejob.api.audit.recorder import Auditor
    from onejob.api.job_records import OutputSource

_LOGGED: Final = "an error on the server was logged"


class Access(Struct, frozen=True):
    """Users of a server and their permissions."""

    authenticator: Authenticator
    authorizer: Authorizer
    #: Issuer of service-account tokens; None if the server issues none.
    token_requests: TokenRequests | None = None


class PodSources(Struct, frozen=True):
    """Sources of data about running Pods, which only a node has; each may be absent."""

    logs: LogSource | None = None
    outputs: "OutputSource | None" = None
    sessions: ExecSource | None = None
    ports: PortSource | None = None
    usage: UsageSource | None = None


_NO_PODS: Final = PodSources()


class ApiApp:
    """HTTP frontend of a `Service`. `close_streams` ends all watches and followed logs."""

    def __init__(
        self,
        service: Service,
        *,
        access: Access,
        pages: ServerPages,
        rng: Random,
        metrics: Metrics,
        pods: PodSources = _NO_PODS,
        dashboard: Dashboard | None = None,
        auditor: "Auditor | None" = None,
    ) -> None:
        self._kinds = service.kinds
        self._router = Router(service.kinds)
        self._long_running = LongRunningRequests()
        self._observation = Observation(service.clock, RequestIds(rng), metrics)
        self._auditing = Auditing(auditor) if auditor is not None else None
        self._authentication = Authentication(access.authenticator, access.authorizer, dashboard)
        self._authorization = Authorization(access.authorizer)
        self.flow_control = FlowControl(FairQueue(service.clock.monotonic), metrics)
        self._execution = Execution(
            Endpoints(
                service,
                authorizer=access.authorizer,
                authenticator=access.authenticator,
                rng=rng,
                logs=pods.logs,
                outputs=pods.outputs,
                usage=pods.usage,
                token_requests=access.token_requests,
                ports=pods.ports,
            ),
            Upgrades(service, pods.sessions, pods.ports),
            DiscoveryPages(service.kinds),
            pages,
            dashboard,
        )

    async def __call__(self, request: Request) -> Response:
        """Return the response, whose `on_end` must be called. Raises ClientGone."""
        progress = self._observation.begin(request)
        try:
            if self._auditing is not None:
                request = self._auditing.begin(request, progress)
            response = await self._respond(request, progress)
            self._observation.responded(progress, response)
            if progress.audited is not None:
                record_response(progress.audited, response)
            if progress.seat and (response.endless or isinstance(response.body, bytes)):
                # The work is done; a slow reader must not occupy the seat. Long lists keep theirs,
                # because they are rendered while they are sent.
                self.flow_control.leave(progress)
            ends = self._ends(request, progress, response) if response.endless else ()
            ended = partial(self._ended, progress)
            return encoded(response, request, progress.request_id, ends, ended)
        except BaseException:
            self._ended(progress)
            raise

    async def _respond(self, request: Request, progress: Progress) -> Response:
        """Pass a request through the stages; turn errors into responses. Raises ClientGone."""
        try:
            path = self._router.locate(request.raw_path)
            user, credentials = self._authentication.authenticate(request, path, progress.audited)
            if user is not ANONYMOUS:
                request.on_authenticated()
            if request.upgrade or b"sec-fetch-site" in request.fields:
                require_same_site(request)
            await self.flow_control.enter(progress, path, user)
            query = parse_query(request.query_string)
            operation = progress.operation = operation_of(request, path, query)
            progress.required = operation.required
            self._authorization.authorize(user, operation.required)
            call = UserRequest(
                request.method,
                query,
                request.fields,
                user,
                request.stream,
                progress.stands_for,
                request.query_string,
            )
            if request.upgrade:
                return await self._execution.open_session(call, operation, request.subprotocols)
            return await self._execution.execute(call, operation, credentials)
        except PageNotFound:
            return text_response("404 page not found\n", 404)
        except PageMethodNotAllowed:
            return text_response("405 method not allowed\n", 405)
        except ApiError as error:
            return error_response(error)
        except DamagedDocument as error:
            return error_response(storage_read_error(error, self._kinds))
        except ClientGone:
            raise
        except MemoryError:
            memory_reserve.spend()
            self._observation.out_of_memory(progress)
            return error_response(out_of_memory())
        except Exception:
            self._observation.failed(progress)
            request_id = progress.request_id.decode()
            return error_response(InternalError(f"{_LOGGED}: request {request_id}"))

    def _ends(
        self, request: Request, progress: Progress, response: Response
    ) -> tuple["asyncio.Future[None]", ...]:
        """Return the futures that end an endless response early."""
        revoked = progress.revoked = self._long_running.open(
            partial(self._recheck, request, progress)
        )
        if response.session is not None:
            # Its connection is closed at a shutdown.
            return (revoked,)
        return revoked, self._long_running.shutdown

    def _recheck(self, request: Request, progress: Progress) -> None:
        """Raise the error with which an open stream would be rejected if it started now."""
        path = self._router.locate(request.raw_path)
        user, _ = self._authentication.authenticate(request, path)
        self._authorization.authorize(user, progress.required)

    def _ended(self, progress: Progress) -> None:
        """Release everything that a request holds; called once, when its response has ended."""
        if progress.revoked is not None:
            self._long_running.close(progress.revoked)
        if progress.seat:
            self.flow_control.leave(progress)
        if progress.audited is not None and progress.endless:
            record_end(progress.audited, progress.code)
        self._observation.ended(progress)

    def close_streams(self) -> None:
        """End all endless streams, including streams that start later."""
        self._long_running.shut_down()
