"""Request handlers below /ui: static files, signing in and out, and summaries.

All other data the page gets from the Kubernetes API, like any client.
"""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from onejob import __version__
from onejob.api.access.authentication import ANONYMOUS, Credentials
from onejob.api.access.authorization import Attributes, Authorizer, require
from onejob.api.decoding.query import first, flag
from onejob.api.http.requests import UserRequest
from onejob.api.http.responses import Response, error_response, json_response, text_response
from onejob.api.http.routing import PageNotFound
from onejob.api.sessions.pod_streams import LogSource, log_options
from onejob.dashboard.files import MISSING, SAFETY_HEADERS, Files
from onejob.dashboard.log_stream import merged_logs
from onejob.dashboard.queues import SECRETS
from onejob.dashboard.readers import Readers
from onejob.dashboard.sessions import (
    CODE_SECONDS,
    MAX_SESSION_SECONDS,
    SESSION_HEADER,
    Sessions,
    cookie_name,
    read_cookie,
    read_session_key,
    set_cookie,
)
from onejob.diagnosis.result_table import as_csv
from onejob.objects.meta import CRONJOBS, EVENTS, JOBS, PODS, WORKFLOWS, Key
from onejob.planning.bad_input import BadInput
from onejob.planning.job.indexes import read_index
from onejob.wire.errors import (
    ApiError,
    BadRequest,
    Conflict,
    MethodNotAllowed,
    NotFound,
    Unauthorized,
)
from onejob.wire.kinds import BY_RESOURCE, MEASURED_KINDS

#: Header value required to open a session; a form of another site cannot send it.
_SIGN_IN: Final = "sign-in"
#: Upper bound on a body that is read before authentication: just enough for a code.
_SIGN_IN_BYTES: Final = 4096
_SIGN_IN_SECONDS: Final = 10.0
_FRAMES: Final = b"application/octet-stream"
_MAX_LOGS: Final = 100
_POD_METRICS: Final = "pods.metrics.k8s.io"
_KINDS: Final = {**BY_RESOURCE, **{kind.resource: kind for kind in MEASURED_KINDS}}
_MAX_CAUSES: Final = 100
_NO_STORE: Final = (b"cache-control", b"no-store")
_SIGN_IN_AGAIN: Final = "the session has ended: run `onejob ui` to sign in again"


class _SignIn(msgspec.Struct):
    code: str
    #: User last signed in in this browser; "" if any user may follow.
    expected: str = ""


class DashboardPages:
    """Implementation of `onejob.api.http.dashboard.Dashboard`."""

    def __init__(
        self,
        sessions: Sessions,
        authorizer: Authorizer,
        readers: Readers,
        files: Files,
        logs: LogSource | None,
        kept_runs: Callable[[], object] | None = None,
    ) -> None:
        """`kept_runs` returns the list of kept runs, if the dashboard is that of these."""
        self._queues = readers.queues
        self._causes = readers.causes
        self._results = readers.results
        self._usage = readers.usage
        self._summaries = readers.summaries
        self._kept_runs = kept_runs
        self._sessions = sessions
        self._authorizer = authorizer
        self._files = files
        self._logs = logs

    async def stop(self) -> None:
        """End what continues in the background."""
        await self._usage.stop()

    def session(self, headers: Mapping[bytes, bytes]) -> Credentials | None:
        key = read_session_key(headers)
        if key is None or key == _SIGN_IN:
            return None
        found = self._sessions.find(read_cookie(headers), key)
        if found is None:
            raise Unauthorized(_SIGN_IN_AGAIN)
        return found

    async def answer(
        self, request: UserRequest, path: tuple[str, ...], credentials: Credentials
    ) -> Response:
        try:
            if path[:1] != ("api",):
                return self._file(request, path)
            answer = await self._api(request, path[1:], credentials)
        except PageNotFound:
            answer = text_response("404 page not found\n", 404)
        except ApiError as error:
            answer = error_response(error)
        headers = tuple(dict((*answer.headers, *SAFETY_HEADERS, _NO_STORE)).items())
        return Response(answer.code, answer.body, answer.content_type, headers, answer.endless)

    def _file(self, request: UserRequest, path: tuple[str, ...]) -> Response:
        """Return a file of the page. Raises PageNotFound."""
        _require_method(request, "GET", "HEAD")
        name = "/".join(path)
        found = self._files.answer(name, request.headers.get(b"accept-encoding", b""))
        if found is None:
            raise PageNotFound(name)
        return found

    async def _api(
        self, request: UserRequest, path: tuple[str, ...], credentials: Credentials
    ) -> Response:
        """Return the response of the dashboard's own API. Raises Unauthorized, PageNotFound and
        errors of the handlers."""
        if path == ("session",) and request.method == "POST":
            return await self._sign_in(request)
        if request.user is ANONYMOUS:
            raise Unauthorized("Unauthorized")
        self._usage.note_use()
        match path:
            case ("session",) if request.method == "DELETE":
                return self._sign_out(request)
            case ("session",):
                return self._current_user(request)
            case ("codes",):
                return self._new_code(request, credentials)
            case ("runs",) if self._kept_runs is not None:
                return json_response({"runs": self._kept_runs()})
            case ("causes",):
                return await self._causes_of(request)
            case ("jobs", namespace, name):
                return await self._job(request, Key(JOBS, namespace, name))
            case ("pods", namespace, name):
                return await self._pod(request, Key(PODS, namespace, name))
            case ("jobs", namespace, name, "indexes", index):
                return await self._index(request, Key(JOBS, namespace, name), index)
            case ("jobs", namespace, name, "usage"):
                return await self._usage_of_job(request, Key(JOBS, namespace, name))
            case ("pods", namespace, name, "usage"):
                return self._usage_of_pod(request, Key(PODS, namespace, name))
            case ("jobs", namespace, name, "results"):
                return await self._results_of(request, Key(JOBS, namespace, name))
            case ("jobs", namespace, name, "rerun"):
                return await self._rerun(request, Key(JOBS, namespace, name))
            case ("cronjobs",):
                return await self._next_runs(request)
            case ("cronjobs", namespace, name):
                return await self._cronjob(request, Key(CRONJOBS, namespace, name))
            case ("cronjobs", namespace, name, "manual-job"):
                return await self._manual_job(request, Key(CRONJOBS, namespace, name))
            case ("workflows", namespace, name, "rerun"):
                return await self._rerun_workflow(request, Key(WORKFLOWS, namespace, name))
            case ("queue",):
                return await self._queue(request)
            case ("mirrors",):
                return await self._mirrors(request)
            case ("logs", namespace):
                return self._logs_of(request, namespace)
            case _:
                raise PageNotFound("/".join(path))

    # --- signing in -----------------------------------------------------------------------

    def _new_code(self, request: UserRequest, credentials: Credentials) -> Response:
        """Return a new sign-in code for the user. Raises BadRequest, NotFound."""
        _require_method(request, "POST")
        if SESSION_HEADER in request.headers:
            raise BadRequest("a session cannot create other sessions: run `onejob ui`")
        if any(name.startswith(b"impersonate-") for name in request.headers):
            raise BadRequest("impersonation is not supported for sessions: remove it")
        if not self._files.built:
            raise NotFound("{}: {}".format(*MISSING))
        code = self._sessions.new_code(request.user.name, credentials)
        return json_response({"code": code, "expiresInSeconds": int(CODE_SECONDS)}, 201)

    async def _sign_in(self, request: UserRequest) -> Response:
        """Exchange a sign-in code for a session. Raises BadRequest, Unauthorized."""
        if request.headers.get(SESSION_HEADER) != _SIGN_IN.encode():
            raise BadRequest("sign-in is allowed only from the dashboard")
        try:
            body = await request.body(_SIGN_IN_BYTES, _SIGN_IN_SECONDS)
            asked = msgspec.json.decode(body, type=_SignIn)
        except msgspec.DecodeError as error:
            raise BadRequest(f"invalid sign-in request: {error}") from None
        user = self._sessions.user_of(asked.code)
        if user and asked.expected and user != asked.expected:
            raise Conflict(f"this link is for {user}, not for {asked.expected}")
        opened = self._sessions.open(asked.code)
        if opened is None:
            raise Unauthorized(
                "this link has been used or has expired: run `onejob ui` for a new one"
            )
        cookie = set_cookie(cookie_name(request.headers), opened.cookie, int(MAX_SESSION_SECONDS))
        return json_response({"key": opened.key}, 201, ((b"set-cookie", cookie),))

    def _sign_out(self, request: UserRequest) -> Response:
        key = request.headers.get(SESSION_HEADER, b"").decode("latin-1")
        self._sessions.close(read_cookie(request.headers), key)
        cookie = set_cookie(cookie_name(request.headers), "", 0)
        return json_response({}, 200, ((b"set-cookie", cookie),))

    def _current_user(self, request: UserRequest) -> Response:
        _require_method(request, "GET")
        return json_response(
            {
                "user": request.user.name,
                "groups": request.user.groups,
                "version": __version__,
                "localZone": self._summaries.local_zone,
                "readOnly": self._kept_runs is not None,
            }
        )

    # --- summaries ------------------------------------------------------------------------

    async def _job(self, request: UserRequest, key: Key) -> Response:
        """Return the summary of a Job, if the user may read it and its Pods."""
        _require_method(request, "GET")
        self._require(request, "get", key)
        self._require(request, "list", Key(PODS, key.namespace, ""))
        return json_response(await self._summaries.job(key))

    async def _causes_of(self, request: UserRequest) -> Response:
        """Return the causes of the requested Jobs' states, if the user may read them and their
        Pods. Last lines of logs are left out if the user may not read logs."""
        _require_method(request, "GET")
        asked = request.query.get("job", ())
        if not 0 < len(asked) <= _MAX_CAUSES:
            raise BadRequest(f"specify 1 to {_MAX_CAUSES} Jobs")
        keys = []
        for text in asked:
            namespace, slash, name = text.partition("/")
            if not slash or not namespace or not name:
                raise BadRequest(f"job={text}: expected NAMESPACE/NAME")
            keys.append(Key(JOBS, namespace, name))
        for key in keys:
            self._require(request, "get", key)
        for namespace in {key.namespace for key in keys}:
            self._require(request, "list", Key(PODS, namespace, ""))

        def may_read_log(pod: Key) -> bool:
            return self._may(request, "get", pod, "log")

        return json_response({"causes": await self._causes.of(keys, may_read_log)})

    async def _index(self, request: UserRequest, key: Key, text: str) -> Response:
        """Return the Pods of an index, if the user may read the Job and its Pods."""
        _require_method(request, "GET")
        self._require(request, "get", key)
        self._require(request, "list", Key(PODS, key.namespace, ""))
        index = read_index(text)
        if index is None:
            raise BadRequest(f"{text}: expected an index such as 0 or 17")
        return json_response(await self._summaries.index(key, index))

    async def _results_of(self, request: UserRequest, key: Key) -> Response:
        """Return the results of a Job as JSON or, for `?format=csv`, as CSV."""
        _require_method(request, "GET")
        self._require(request, "get", key)
        self._require(request, "list", Key(PODS, key.namespace, ""))

        def require_get(other: Key) -> None:
            self._require(request, "get", other)

        found = await self._results.of(key, require_get)
        if first(request.query, "format") == "csv":
            return Response(200, as_csv(found.results).encode(), b"text/csv; charset=utf-8")
        return json_response(found.document)

    async def _pod(self, request: UserRequest, key: Key) -> Response:
        """Return the summary of a Pod, if the user may read it."""
        _require_method(request, "GET")
        self._require(request, "get", key)
        return json_response(await self._summaries.pod(key))

    async def _usage_of_job(self, request: UserRequest, key: Key) -> Response:
        """Return the usage over time of a Job's Pods, if the user may read it and their metrics."""
        _require_method(request, "GET")
        self._require(request, "get", key)
        self._require(request, "list", Key(_POD_METRICS, key.namespace, ""))
        uid = await self._summaries.uid(key)
        return json_response({"pods": self._usage.of_owner(key.namespace, uid)})

    def _usage_of_pod(self, request: UserRequest, key: Key) -> Response:
        """Return the usage over time of a Pod, if the user may read its metrics."""
        _require_method(request, "GET")
        self._require(request, "get", Key(_POD_METRICS, key.namespace, key.name))
        return json_response({"pods": self._usage.of_pod(key)})

    async def _cronjob(self, request: UserRequest, key: Key) -> Response:
        """Return the summary of a CronJob, if the user may read it, its Jobs and Events."""
        _require_method(request, "GET")
        self._require(request, "get", key)
        for resource in (JOBS, EVENTS):
            self._require(request, "list", Key(resource, key.namespace, ""))
        return json_response(await self._summaries.cronjob(key))

    async def _next_runs(self, request: UserRequest) -> Response:
        _require_method(request, "GET")
        namespace = first(request.query, "namespace")
        self._require(request, "list", Key(CRONJOBS, namespace, ""))
        return json_response(await self._summaries.next_runs(namespace))

    async def _rerun(self, request: UserRequest, key: Key) -> Response:
        """Return the objects to create in order to run a Job once more; the page creates them."""
        _require_method(request, "GET")
        self._require(request, "get", key)
        failed_only = flag(request.query, "failedOnly")
        text = first(request.query, "fromIndex")
        from_index = read_index(text)
        if text and from_index is None:
            raise BadRequest(f"fromIndex={text}: expected an index such as 0 or 17")

        def require_get(other: Key) -> None:
            self._require(request, "get", other)

        try:
            documents = await self._summaries.rerun(
                key, failed_only=failed_only, from_index=from_index, require_get=require_get
            )
            return json_response({"documents": documents})
        except BadInput as error:
            raise BadRequest("; ".join(error.lines)) from None

    async def _rerun_workflow(self, request: UserRequest, key: Key) -> Response:
        """Return the Workflow to create in order to run one again; the page creates it."""
        _require_method(request, "GET")
        self._require(request, "get", key)
        from_task, failed_only = first(request.query, "from"), flag(request.query, "failedOnly")
        try:
            document = await self._summaries.rerun_workflow(key, from_task, failed_only)
            return json_response({"document": document})
        except BadInput as error:
            raise BadRequest("; ".join(error.lines)) from None

    async def _manual_job(self, request: UserRequest, key: Key) -> Response:
        _require_method(request, "GET")
        self._require(request, "get", key)
        return json_response({"document": await self._summaries.manual_job(key)})

    async def _queue(self, request: UserRequest) -> Response:
        """Return the queue of a namespace, if the user may list its Jobs."""
        _require_method(request, "GET")
        namespace = first(request.query, "namespace")
        self._require(request, "list", Key(JOBS, namespace, ""))

        def may_get(key: Key) -> bool:
            return self._may(request, "get", key)

        return json_response(await self._queues.queue(namespace, may_get))

    async def _mirrors(self, request: UserRequest) -> Response:
        """Return the mirror targets.

        Requires access to Secrets, because the targets are read from them.
        """
        _require_method(request, "GET")
        namespace = first(request.query, "namespace")
        for resource in (JOBS, SECRETS):
            self._require(request, "list", Key(resource, namespace, ""))
        return json_response(await self._queues.mirrors(namespace))

    # --- logs -----------------------------------------------------------------------------

    def _logs_of(self, request: UserRequest, namespace: str) -> Response:
        """Return the merged logs of the requested containers. Raises BadRequest, Forbidden,
        NotFound."""
        _require_method(request, "GET")
        wanted = []
        asked = request.query.get("log", ())
        if not 0 < len(asked) <= _MAX_LOGS:
            raise BadRequest(f"specify 1 to {_MAX_LOGS} logs")
        for text in asked:
            pod, slash, container = text.partition("/")
            if not slash or not pod or not container:
                raise BadRequest(f"log={text}: expected POD/CONTAINER")
            self._require(request, "get", Key(PODS, namespace, pod), "log")
            wanted.append((pod, container))
        if self._logs is None:
            raise NotFound("this server runs no Pods")
        options = log_options({**request.query, "timestamps": ["true"]}, wanted[0][0])
        frames = merged_logs(self._logs, namespace, wanted, options)
        return Response(200, frames, _FRAMES, endless=options.follow)

    def _may(self, request: UserRequest, verb: str, key: Key, subresource: str = "") -> bool:
        """Return whether the user may do this; if so, it is audited as `_require` does."""
        wanted = _attributes_of(verb, key, subresource)
        allowed = self._authorizer.authorize(request.user, wanted).allowed
        if allowed:
            request.audit_as(wanted)
        return allowed

    def _require(self, request: UserRequest, verb: str, key: Key, subresource: str = "") -> None:
        """Authorise and audit the request as the equivalent API request. Raises Forbidden."""
        wanted = _attributes_of(verb, key, subresource)
        request.audit_as(wanted)
        require(self._authorizer, request.user, wanted)


def _attributes_of(verb: str, key: Key, subresource: str = "") -> Attributes:
    """Return the attributes of a request for an object."""
    kind = _KINDS[key.resource]
    return Attributes(
        verb, kind.group, kind.version, kind.plural, subresource, key.namespace, key.name
    )


def _require_method(request: UserRequest, *methods: str) -> None:
    if request.method not in methods:
        raise MethodNotAllowed("the server does not allow this method on the requested resource")
