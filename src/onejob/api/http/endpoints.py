"""HTTP endpoints of the API verbs: decode options and body, call the service, encode the result."""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import msgspec

from onejob.api.access.authentication import NO_AUTHENTICATOR, Authenticator
from onejob.api.access.authorization import Attributes, Authorizer, require
from onejob.api.access.reviews import review
from onejob.api.access.service_accounts.token_requests import TokenRequests
from onejob.api.decoding.bodies import decode_body, decode_patch, weight
from onejob.api.decoding.query import (
    delete_options_from_body,
    delete_options_from_query,
    first,
    list_options,
    number,
    watch_options,
    write_options,
)
from onejob.api.http.negotiation import negotiate
from onejob.api.http.representations import (
    as_protobuf,
    as_yaml,
    by_worker,
    enclosed,
    enclosed_yaml,
    in_turns,
    is_status,
    list_metadata,
    list_pieces,
    require_form,
)
from onejob.api.http.requests import UserRequest
from onejob.api.http.responses import Header, Response, json_response, warning_headers
from onejob.api.http.routing import ResourcePath
from onejob.api.http.streams import Rendering, Watch, begun, resumed
from onejob.api.http.tables import parse_include_object, table_pieces
from onejob.api.schema.protobuf_encoding import encode_list
from onejob.api.service import Service
from onejob.api.sessions.admitting import admitted_query
from onejob.api.sessions.pod_streams import (
    LogSource,
    choose_container,
    is_scheduled,
    log_options,
    require_running,
    session_request,
)
from onejob.api.sessions.port_forwarding import PortSource
from onejob.api.sessions.upgrades import SESSIONS
from onejob.api.strategy import Document
from onejob.api.usage import UsageReader, UsageSource
from onejob.api.writing.patching import json_patch, merge_patch
from onejob.api.yielding import INLINE_BYTES, LARGE_BYTES, PER_DOCUMENT_COST_BYTES, Turns
from onejob.objects.job import read_job
from onejob.objects.meta import PODS
from onejob.objects.pod import read_pod
from onejob.wire.errors import (
    BadRequest,
    NotAcceptable,
    NotFound,
    RequestTooLarge,
    UnsupportedMediaType,
)
from onejob.wire.kinds import BY_RESOURCE, METRICS_GROUP, Kind
from onejob.wire.requests import (
    DeleteOptions,
    ListOptions,
    ListOutcome,
    Outcome,
    Target,
    User,
    WriteOptions,
)

if TYPE_CHECKING:
    from onejob.api.crd.scale import ScalePaths
    from onejob.api.job_records import OutputSource
    from onejob.api.sessions.proxy.relaying import PodProxy

T = TypeVar("T")

_TEXT: Final = b"text/plain"
_TAR: Final = b"application/x-tar"
_POD: Final = BY_RESOURCE[PODS]
_REVIEW_GROUPS: Final = frozenset(("authentication.k8s.io", "authorization.k8s.io"))
#: Time to wait for the first log piece before the response is started without it.
_LOG_PATIENCE_SECONDS: Final = 0.25
#: The same for an archive, whose absence is an error.
_ARCHIVE_PATIENCE_SECONDS: Final = 30.0
_WATCH_SECONDS: Final = (1800, 3600)

_ORPHANS_WARNING: Final = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background "
    "to remove them or set propagationPolicy=Orphan to suppress this warning"
)


class Endpoints:
    """Endpoints of all kinds, by verb.

    Requests must be authenticated and authorized. Only the right to create an object by an apply
    patch is checked here.
    """

    def __init__(
        self,
        service: Service,
        *,
        authorizer: Authorizer,
        authenticator: Authenticator = NO_AUTHENTICATOR,
        rng: Random,
        logs: LogSource | None = None,
        outputs: "OutputSource | None" = None,
        usage: UsageSource | None = None,
        token_requests: TokenRequests | None = None,
        ports: PortSource | None = None,
    ) -> None:
        self._service = service
        self._usage = UsageReader(service, usage)
        self._authorizer = authorizer
        self._authenticator = authenticator
        self._token_requests = token_requests
        self._rng = rng
        self._logs = logs
        self._outputs = outputs
        self._ports = ports
        self._proxy: PodProxy | None = None
        self._by_verb: Mapping[str, Callable[[UserRequest, ResourcePath], Awaitable[Response]]] = {
            "get": self._get,
            "list": self._list,
            "watch": self._watch,
            "create": self._create,
            "update": self._update,
            "patch": self._patch,
            "delete": self._delete,
            "deletecollection": self._delete_collection,
        }

    async def answer(self, request: UserRequest, target: ResourcePath, verb: str) -> Response:
        """Perform the verb on the resource and return the response."""
        if target.subresource == "proxy":
            return await self.proxy.relay(request, target)
        if verb not in ("get", "list", "watch"):
            _require_answerable(request, target, is_list=verb == "deletecollection")
        if target.kind.group == METRICS_GROUP:
            return await self._measured(request, target)
        return await self._by_verb[verb](request, target)

    @property
    def proxy(self) -> "PodProxy":
        """Proxy to Pods, imported and created with its first request."""
        if self._proxy is None:
            from onejob.api.sessions.proxy.relaying import PodProxy

            self._proxy = PodProxy(self._service, self._ports, self._rng)
        return self._proxy

    # --- reading --------------------------------------------------------------------------

    async def _get(self, request: UserRequest, target: ResourcePath) -> Response:
        match target.subresource:
            case "pods":
                return await self._pods_of_job(request, target)
            case "history" | "outputs" | "progress":
                return await self._record_of_job(request, target)
            case "log":
                return await self._log(request, target)
            case "scale":
                return await self._scale(request, target)
            case session if session in SESSIONS:
                await self._refuse_session(request, target)
            case _:
                pass
        if at_least := first(request.query, "resourceVersion"):
            self._service.require_reached(at_least)
        document = await self._service.get_for_client(target.kind, target.namespace, target.name)
        return await self._object_response(request, target.kind, Outcome(200, document))

    async def _list(self, request: UserRequest, target: ResourcePath) -> Response:
        options = list_options(request.query)
        # Negotiate before reading, so that an unacceptable request costs nothing.
        representation = negotiate(request.header(b"accept"))
        require_form(representation, target.kind, is_list=True)
        outcome = await self._service.list(target.kind, target.namespace, options)
        return await self._list_response(request, target.kind, outcome)

    async def _measured(self, request: UserRequest, target: ResourcePath) -> Response:
        """Return PodMetrics or NodeMetrics. They have no Table, metadata-only or protobuf form."""
        representation = negotiate(request.header(b"accept"), tables=False)
        if representation.form or representation.media == "protobuf":
            raise NotAcceptable("metrics are served as whole objects, in JSON and YAML only")
        if target.name:
            document = await self._usage.get(target.kind, target.namespace, target.name)
        else:
            options = list_options(request.query)
            document = await self._usage.list(target.kind, target.namespace, options)
        if representation.media == "yaml":
            document = await as_yaml(document, self._service.worker)
        return Response(200, document, representation.content_type)

    async def _pods_of_job(self, request: UserRequest, target: ResourcePath) -> Response:
        """Return the list of Pods that the Job controls (the subresource `pods`)."""
        job = await self._service.get(target.kind, target.namespace, target.name)
        uid = read_job(job).metadata.uid
        found = await self._service.list(_POD, target.namespace, ListOptions())
        owned = []
        turns = Turns()
        for document in found.documents:
            await turns.spend(len(document) + PER_DOCUMENT_COST_BYTES)
            controller = read_pod(document).metadata.controller_ref
            if controller is not None and controller.uid == uid:
                owned.append(document)
        return await self._list_response(request, _POD, ListOutcome(tuple(owned), found.revision))

    async def _record_of_job(self, request: UserRequest, target: ResourcePath) -> Response:
        # Imported on use: few requests ask for these.
        from onejob.api.job_records import JobRecords, no_outputs

        records = JobRecords(self._service, self._outputs)
        job = await records.job(target.namespace, target.name)
        match target.subresource:
            case "history":
                limit = number(request.query, "limit")
                return json_response(await records.history(job, limit))
            case "progress":
                return json_response(await records.progress(job))
            case _:
                pass
        part, index = first(request.query, "path"), number(request.query, "index")
        pieces = records.archive(job, part, index)
        first_piece = await begun(pieces, _ARCHIVE_PATIENCE_SECONDS)
        if first_piece.done() and first_piece.result() is None:
            raise no_outputs(job, part, index)
        return Response(200, resumed(first_piece, pieces), _TAR)

    async def _log(self, request: UserRequest, target: ResourcePath) -> Response:
        """Return a container's log as a stream.

        The body is empty for a Pod that is not scheduled, for HEAD, and without a source of logs.
        """
        options = log_options(request.query, target.name)
        document = await self._service.get(_POD, target.namespace, target.name)
        pod: Document = msgspec.json.decode(document)
        container = choose_container(pod, first(request.query, "container"))
        if self._logs is None or not is_scheduled(pod) or request.method == "HEAD":
            # Open no log if no container has run yet or the body will not be sent.
            return Response(200, b"", _TEXT)
        pieces = await self._logs.logs(target.namespace, target.name, container, options)
        first_piece = await begun(pieces, _LOG_PATIENCE_SECONDS)
        return Response(200, resumed(first_piece, pieces), _TEXT, endless=options.follow)

    async def _refuse_session(self, request: UserRequest, target: ResourcePath) -> NoReturn:
        """Raise the error of a session request that arrives without an upgrade.

        Clients whose upgrade was rejected retry with an older protocol and display the error of
        that attempt, so problems of the session itself are reported first.
        """
        query = await admitted_query(self._service, target, request.query, request.user)
        document = await self._service.get(_POD, target.namespace, target.name)
        pod: Document = msgspec.json.decode(document)
        if target.subresource == "portforward":
            require_running(pod, "forward ports of")
        else:
            attach = target.subresource == "attach"
            session_request(pod, query, target.namespace, target.name, attach=attach)
        raise BadRequest("Upgrade request required")

    async def _watch(self, request: UserRequest, target: ResourcePath) -> Response:
        watch = await self.open_watch(request, target)
        return Response(200, watch.lines(), watch.content_type, endless=True)

    async def open_watch(self, request: UserRequest, target: ResourcePath) -> Watch:
        """Start a watch.

        Raises the error if it is rejected; otherwise returns immediately, without waiting for the
        first event.
        """
        if "watch" not in target.kind.verbs:
            raise BadRequest(f"{target.kind.plural} cannot be watched")
        options = watch_options(
            request.query, self._rng.randint(*_WATCH_SECONDS), only_name=target.name
        )
        representation = negotiate(request.header(b"accept"), watch=True)
        require_form(representation, target.kind, is_list=False)
        rendering = Rendering(self._service, target.kind, representation, request)
        batches = self._service.watch(target.kind, target.namespace, options)
        return Watch(batches, await begun(batches, 0), rendering)

    # --- writing --------------------------------------------------------------------------

    async def _create(self, request: UserRequest, target: ResourcePath) -> Response:
        if target.subresource in SESSIONS:
            await self._refuse_session(request, target)
        options = write_options(
            request.query, request.user, request.header(b"user-agent"), "CreateOptions"
        )
        (body, problems), size = await self._decoded(_decode_object, request)
        kind = target.kind
        if kind.group in _REVIEW_GROUPS:
            if size > INLINE_BYTES:
                raise RequestTooLarge(f"Request entity too large: limit is {INLINE_BYTES}")
            reviewed = review(
                kind,
                target.namespace,
                body,
                request.user,
                self._authorizer,
                self._authenticator,
            )
            return await self._object_response(
                request, kind, Outcome(201, msgspec.json.encode(reviewed))
            )
        if target.subresource == "token":
            if self._token_requests is None:
                raise NotFound("this server issues no tokens for service accounts")
            made = self._token_requests.create(
                target.namespace, target.name, body, dry_run=options.dry_run
            )
            return await self._object_response(
                request, kind, Outcome(201, msgspec.json.encode(made))
            )
        outcome = await self._service.create(
            kind,
            target.namespace,
            body,
            options,
            name=target.name,
            subresource=target.subresource,
            problems=problems,
            size=size,
        )
        return await self._write_response(request, kind, outcome)

    async def _update(self, request: UserRequest, target: ResourcePath) -> Response:
        options = write_options(
            request.query, request.user, request.header(b"user-agent"), "UpdateOptions"
        )
        (body, problems), size = await self._decoded(_decode_object, request)
        _require_name(body, target.name)
        if target.subresource == "scale":
            return await self._update_scale(request, target, body, options)
        outcome = await self._service.update(
            target.kind,
            target.namespace,
            target.name,
            body,
            options,
            subresource=target.subresource,
            problems=problems,
            size=size,
        )
        return await self._write_response(request, target.kind, outcome)

    async def _patch(self, request: UserRequest, target: ResourcePath) -> Response:
        (patch_type, patch), size = await self._decoded(decode_patch, request)
        options = write_options(
            request.query,
            request.user,
            request.header(b"user-agent"),
            "PatchOptions",
            patch_type=patch_type,
        )
        if patch_type == "apply":
            _require_kind(patch.document)
            may_create = partial(self._require_create, request.user, target)
            options = msgspec.structs.replace(options, require_create=may_create)
        if patch_type == "strategic" and target.kind.custom:
            raise UnsupportedMediaType(
                "the body of the request was in an unknown format - accepted media types include: "
                "application/json-patch+json, application/merge-patch+json, "
                "application/apply-patch+yaml"
            )
        if target.subresource == "scale":
            return await self._patch_scale(request, target, patch_type, patch.document, options)
        outcome = await self._service.patch(
            target.kind,
            target.namespace,
            target.name,
            patch_type,
            patch.document,
            options,
            subresource=target.subresource,
            problems=patch.problems,
            size=size,
        )
        return await self._write_response(request, target.kind, outcome)

    def _require_create(self, user: User, target: ResourcePath) -> None:
        """Raise Forbidden unless the user may create the object.

        The right to patch does not include it.
        """
        kind = target.kind
        place = (kind.group, kind.version, kind.plural, target.subresource)
        wanted = Attributes("create", *place, target.namespace, target.name)
        require(self._authorizer, user, wanted)

    # --- scale ----------------------------------------------------------------------------

    async def _scale(self, request: UserRequest, target: ResourcePath) -> Response:
        document = await self._service.get(target.kind, target.namespace, target.name)
        return await self._scale_answer(request, target, document)

    async def _update_scale(
        self, request: UserRequest, target: ResourcePath, scale: Document, options: WriteOptions
    ) -> Response:
        """Set the replicas of an object, and return the response with its scale."""
        from onejob.api.crd.scale import replicas_patch, scale_of

        kind = target.kind
        warnings: Sequence[str] = ()
        paths = self._scale_paths(kind)
        patch = replicas_patch(scale, target.name, paths)
        if self._service.admission.dynamic.active:
            place = Target(kind, target.namespace, target.name, target.subresource)
            document = await self._service.get(kind, target.namespace, target.name)
            old = scale_of(msgspec.json.decode(document), kind, paths, to_change=True)
            wanted = {**old, "spec": scale.get("spec") or {}}
            scale, warnings = await self._service.admitted("UPDATE", place, wanted, old, options)
            patch = replicas_patch(scale, target.name, paths)
            options = msgspec.structs.replace(options, admitted=True)
        outcome = await self._service.patch(
            kind, target.namespace, target.name, "merge", patch, options
        )
        return await self._scale_answer(request, target, outcome.document, warnings)

    async def _patch_scale(
        self,
        request: UserRequest,
        target: ResourcePath,
        patch_type: str,
        patch: Any,
        options: WriteOptions,
    ) -> Response:
        """Apply a patch to the scale of an object, and update its replicas accordingly."""
        from onejob.api.crd.scale import scale_of

        kind = target.kind
        document = await self._service.get(kind, target.namespace, target.name)
        paths = self._scale_paths(kind)
        present = scale_of(msgspec.json.decode(document), kind, paths, to_change=True)
        present["metadata"].pop("resourceVersion", None)
        match patch_type:
            case "json":
                wanted = json_patch(present, patch)
            # A Scale has no lists, so that a strategic merge is a merge.
            case "merge" | "strategic":
                wanted = merge_patch(present, patch)
            case _:
                raise UnsupportedMediaType("a scale takes JSON patches and merge patches")
        return await self._update_scale(request, target, wanted, options)

    async def _scale_answer(
        self,
        request: UserRequest,
        target: ResourcePath,
        document: bytes,
        warnings: Sequence[str] = (),
    ) -> Response:
        """Return the response with the scale of an object, given its document."""
        from onejob.api.crd.scale import scale_of

        kind = target.kind
        scale = scale_of(msgspec.json.decode(document), kind, self._scale_paths(kind))
        representation = negotiate(request.header(b"accept"), tables=False)
        body = msgspec.json.encode(scale)
        if representation.media == "yaml":
            body = await as_yaml(body, self._service.worker)
        elif representation.media == "protobuf":
            body = await as_protobuf(body, self._service.worker)
        return Response(200, body, representation.content_type, warning_headers(warnings))

    def _scale_paths(self, kind: Kind) -> "ScalePaths":
        """Return the paths of the replica fields in objects of this kind."""
        from onejob.api.crd.scale import WORKLOAD

        return self._service.definitions.scale(kind) if kind.custom else WORKLOAD

    async def _delete(self, request: UserRequest, target: ResourcePath) -> Response:
        options = await self._delete_options(request)
        outcome = await self._service.delete(target.kind, target.namespace, target.name, options)
        return await self._write_response(
            request,
            target.kind,
            outcome,
            extra_warnings=self._deletion_warnings(target.kind, options),
        )

    async def _delete_collection(self, request: UserRequest, target: ResourcePath) -> Response:
        selection = list_options(request.query)
        options = await self._delete_options(request)
        outcome = await self._service.delete_collection(
            target.kind, target.namespace, selection, options
        )
        return await self._list_response(
            request, target.kind, outcome, self._deletion_warnings(target.kind, options)
        )

    def _deletion_warnings(self, kind: Kind, options: DeleteOptions) -> Sequence[str]:
        """Return the warning about orphaned Pods if the kind orphans by default and the client
        chose no propagation."""
        surprising = self._service.strategies[kind.strategy].default_propagation == "Orphan"
        return (_ORPHANS_WARNING,) if surprising and not options.propagation else ()

    async def _delete_options(self, request: UserRequest) -> DeleteOptions:
        """Return the options in the request's body, or in its query if the body is empty."""
        body = await request.body()
        if not body:
            return delete_options_from_query(request.query, request.user)
        if len(body) > INLINE_BYTES:
            raise RequestTooLarge(f"Request entity too large: limit is {INLINE_BYTES}")
        document, _ = _decode_object(body, request.header(b"content-type"))
        return delete_options_from_body(document, request.user)

    async def _decoded(
        self, decode: Callable[[bytes, str], T], request: UserRequest
    ) -> tuple[T, int]:
        """Return the decoded body and its processing cost in bytes.

        Large bodies are decoded in the worker thread.
        """
        body, content_type = await request.body(), request.header(b"content-type")
        size = weight(body, content_type)
        if size <= INLINE_BYTES:
            return decode(body, content_type), size
        return await self._service.worker.run(decode, body, content_type), size

    # --- answering ------------------------------------------------------------------------

    async def _write_response(
        self,
        request: UserRequest,
        kind: Kind,
        outcome: Outcome,
        *,
        extra_warnings: Sequence[str] = (),
    ) -> Response:
        """Return the response to a successful write."""
        if not is_status(outcome.document):
            outcome = self._service.outcome_for_client(kind, outcome)
        return await self._object_response(request, kind, outcome, extra_warnings=extra_warnings)

    async def _object_response(
        self,
        request: UserRequest,
        kind: Kind,
        outcome: Outcome,
        *,
        extra_warnings: Sequence[str] = (),
    ) -> Response:
        """Return the response with one object or Status, in the representation that the client
        accepts.

        Adds the warnings of the outcome. Raises NotAcceptable.
        """
        representation = negotiate(request.header(b"accept"), tables="get" in kind.verbs)
        document = outcome.document
        as_stored = self._service.strategies[kind.strategy].shows_as_stored
        if (representation.form or not as_stored) and not is_status(document):
            require_form(representation, kind, is_list=False)
            document = Rendering(self._service, kind, representation, request).render(document)
        if representation.media == "yaml":
            document = await as_yaml(document, self._service.worker)
        elif representation.media == "protobuf":
            document = await as_protobuf(document, self._service.worker)
        headers = warning_headers((*outcome.warnings, *extra_warnings))
        return Response(outcome.code, document, representation.content_type, headers)

    async def _for_client(self, kind: Kind, outcome: ListOutcome) -> ListOutcome:
        """Return the list with documents in the form that clients see."""
        strategy = self._service.strategies[kind.strategy]
        if strategy.shows_as_stored:
            return outcome
        documents: list[bytes] = []
        turns = Turns()
        for document in outcome.documents:
            await turns.spend(len(document) + PER_DOCUMENT_COST_BYTES)
            documents.append(strategy.shown(document))
        return msgspec.structs.replace(outcome, documents=tuple(documents))

    async def _list_response(
        self, request: UserRequest, kind: Kind, outcome: ListOutcome, warnings: Sequence[str] = ()
    ) -> Response:
        """Return the response to a list, in the requested representation."""
        representation = negotiate(request.header(b"accept"))
        require_form(representation, kind, is_list=True)
        pieces: Iterator[bytes]
        outcome = await self._for_client(kind, outcome)
        if representation.media == "protobuf":
            document = await self._service.worker.run(
                encode_list, kind, list_metadata(outcome), outcome.documents
            )
            content_type = representation.content_type
            return Response(200, document, content_type, warning_headers(warnings))
        enclose = enclosed_yaml if representation.media == "yaml" else enclosed
        if representation.form == "Table":
            pieces = table_pieces(
                outcome,
                self._service.strategies[kind.strategy],
                parse_include_object(first(request.query, "includeObject")),
                self._service.clock.now(),
                enclose,
            )
        else:
            pieces = list_pieces(outcome, kind, representation.form, enclose)
        headers: tuple[Header, ...] = warning_headers(warnings)
        large = any(len(document) > LARGE_BYTES for document in outcome.documents)
        if enclose is enclosed_yaml or (large and representation.form == "Table"):
            stream = by_worker(pieces, self._service.worker)
            return Response(200, stream, representation.content_type, headers)
        start = next(pieces)
        following = next(pieces, None)
        if following is None:
            return Response(200, start, headers=headers)
        return Response(200, in_turns(start + following, pieces), headers=headers)


def _require_answerable(request: UserRequest, target: ResourcePath, *, is_list: bool) -> None:
    """Raise NotAcceptable or BadRequest if the result could not be rendered for the client.

    Called before anything is written: a write either gets its response or is not executed.
    """
    tables = "get" in target.kind.verbs and target.subresource not in ("binding", "eviction")
    representation = negotiate(request.header(b"accept"), tables=tables)
    require_form(representation, target.kind, is_list=is_list)
    if representation.form == "Table":
        parse_include_object(first(request.query, "includeObject"))


def _decode_object(body: bytes, content_type: str) -> tuple[Document, Sequence[str]]:
    """Return the object in a body, and the problems found in decoding it. Raises BadRequest for
    other JSON values."""
    document, problems = decode_body(body, content_type)
    if document is None:
        # As upstream: null is an object without fields, so validation reports the missing ones.
        return {}, problems
    if not isinstance(document, dict):
        raise BadRequest("the body of the request must be an object")
    return document, problems


def _require_name(body: Document, name: str) -> None:
    """Raise BadRequest unless the body's name matches the URL.

    Checked before the object is looked up.
    """
    metadata = body.get("metadata")
    given = metadata.get("name") if isinstance(metadata, dict) else None
    if not given:
        raise BadRequest(
            f"the name of the object ({name} based on URL) was undeterminable: "
            "name must be provided"
        )
    if given != name:
        raise BadRequest(
            f"the name of the object ({given}) does not match the name on the URL ({name})"
        )


def _require_kind(applied: Document) -> None:
    """Raise BadRequest if an apply patch lacks apiVersion or kind.

    The patch is stored as sent, so the URL cannot supply them.
    """
    for field in ("apiVersion", "kind"):
        if not applied.get(field):
            raise BadRequest(f"an apply patch must say its {field}")
