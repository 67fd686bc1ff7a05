"""The verbs over HTTP: a request becomes options and a body, an outcome becomes an answer."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from random import Random
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from onejob.api.answers import Answer, Header, error_answer, warning_headers
from onejob.api.authorization import Authorizer
from onejob.api.decoding import decode_body, decode_patch
from onejob.api.errors import ApiError, BadRequest
from onejob.api.incoming import Request
from onejob.api.kinds import BY_RESOURCE, Kind
from onejob.api.negotiation import Representation, negotiate
from onejob.api.pod_streams import LogSource, choose_container, is_scheduled, log_options
from onejob.api.query import (
    delete_options_from_body,
    delete_options_from_query,
    first,
    list_options,
    watch_options,
    write_options,
)
from onejob.api.representations import (
    as_yaml,
    in_turns,
    is_status,
    joined,
    list_pieces,
    metadata_only,
    require_form,
    watch_line,
)
from onejob.api.requests import DeleteOptions, ListOptions, ListOutcome, Outcome, ServedEvent
from onejob.api.reviews import review
from onejob.api.routing import Target
from onejob.api.strategy import Document
from onejob.api.tables import (
    bookmark_table,
    object_table,
    parse_include_object,
    table_pieces,
)
from onejob.objects.job import read_job
from onejob.objects.meta import PODS
from onejob.objects.pod import read_pod

if TYPE_CHECKING:
    from onejob.api.service import Service

T = TypeVar("T")

_TEXT: Final = b"text/plain"
_POD: Final = BY_RESOURCE[PODS]
_REVIEW_GROUPS: Final = frozenset(("authentication.k8s.io", "authorization.k8s.io"))
#: How long a log may keep us from saying that there is one.
_LOG_PATIENCE_SECONDS: Final = 0.25
_WATCH_SECONDS: Final = (1800, 3600)
#: How many objects are looked at, or events joined, before others get a turn.
_TURN: Final = 500

_ORPHANS_WARNING: Final = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background "
    "to remove them or set propagationPolicy=Orphan to suppress this warning"
)


class Endpoints:
    def __init__(
        self,
        service: "Service",
        *,
        authorizer: Authorizer,
        rng: Random,
        logs: LogSource | None = None,
    ) -> None:
        self._service = service
        self._authorizer = authorizer
        self._rng = rng
        self._logs = logs

    async def answer(self, request: Request, target: Target, verb: str) -> Answer:
        match verb:
            case "get":
                return await self._get(request, target)
            case "list":
                return await self._list(request, target)
            case "watch":
                return await self._watch(request, target)
            case "create":
                return await self._create(request, target)
            case "update":
                return await self._update(request, target)
            case "patch":
                return await self._patch(request, target)
            case "delete":
                return await self._delete(request, target)
            case "deletecollection":
                return await self._delete_collection(request, target)
            case _:
                raise AssertionError(f"routing let an unknown verb pass: {verb}")

    # --- reading --------------------------------------------------------------------------

    async def _get(self, request: Request, target: Target) -> Answer:
        if target.subresource == "pods":
            return await self._pods_of_job(request, target)
        if target.subresource == "log":
            return await self._log(request, target)
        if target.subresource in ("exec", "attach"):
            raise BadRequest("Upgrade request required")
        document = await self._service.get(target.kind, target.namespace, target.name)
        return await self._object(request, target.kind, Outcome(200, document))

    async def _list(self, request: Request, target: Target) -> Answer:
        options = list_options(request.query)
        # Refuse what cannot be answered before anything is read.
        representation = negotiate(request.header(b"accept"))
        require_form(representation, target.kind, is_list=True)
        outcome = await self._service.list(target.kind, target.namespace, options)
        return await self._listing(request, target.kind, outcome)

    async def _pods_of_job(self, request: Request, target: Target) -> Answer:
        job = await self._service.get(target.kind, target.namespace, target.name)
        uid = read_job(job).metadata.uid
        found = await self._service.list(_POD, target.namespace, ListOptions())
        owned = []
        for position, document in enumerate(found.documents):
            controller = read_pod(document).metadata.controller_ref
            if controller is not None and controller.uid == uid:
                owned.append(document)
            if position % _TURN == _TURN - 1:
                await asyncio.sleep(0)
        return await self._listing(request, _POD, ListOutcome(tuple(owned), found.revision))

    async def _log(self, request: Request, target: Target) -> Answer:
        options = log_options(request.query, target.name)
        document = await self._service.get(_POD, target.namespace, target.name)
        pod: Document = msgspec.json.decode(document)
        container = choose_container(pod, first(request.query, "container"))
        if self._logs is None or not is_scheduled(pod):
            # Nothing has run yet, so there is nothing to read.
            return Answer(200, b"", _TEXT)
        pieces = await self._logs.logs(target.namespace, target.name, container, options)
        first_piece = await _begun(pieces, _LOG_PATIENCE_SECONDS)
        return Answer(200, _resumed(first_piece, pieces), _TEXT, endless=options.follow)

    async def _watch(self, request: Request, target: Target) -> Answer:
        options = watch_options(request.query, self._rng.randint(*_WATCH_SECONDS))
        representation = negotiate(request.header(b"accept"), watch=True)
        require_form(representation, target.kind, is_list=False)
        render = _EventLines(self._service, target.kind, representation, request)
        batches = self._service.watch(target.kind, target.namespace, options)
        # A watch that is refused is refused at once; then the answer is that error. All others
        # get their headers now, not with the first event.
        first_batch = await _begun(batches, 0)
        return Answer(200, _watch_lines(batches, first_batch, render), endless=True)

    # --- writing --------------------------------------------------------------------------

    async def _create(self, request: Request, target: Target) -> Answer:
        if target.subresource in ("exec", "attach"):
            raise BadRequest("Upgrade request required")
        options = write_options(
            request.query, request.user, request.header(b"user-agent"), "CreateOptions"
        )
        body, problems = await self._document(request)
        kind = target.kind
        if kind.group in _REVIEW_GROUPS:
            reviewed = review(kind, target.namespace, body, request.user, self._authorizer)
            return await self._object(request, kind, Outcome(201, msgspec.json.encode(reviewed)))
        outcome = await self._service.create(
            kind,
            target.namespace,
            body,
            options,
            name=target.name,
            subresource=target.subresource,
            problems=problems,
        )
        return await self._object(request, kind, outcome)

    async def _update(self, request: Request, target: Target) -> Answer:
        options = write_options(
            request.query, request.user, request.header(b"user-agent"), "UpdateOptions"
        )
        body, problems = await self._document(request)
        outcome = await self._service.update(
            target.kind,
            target.namespace,
            target.name,
            body,
            options,
            subresource=target.subresource,
            problems=problems,
        )
        return await self._object(request, target.kind, outcome)

    async def _patch(self, request: Request, target: Target) -> Answer:
        patch_type, patch = decode_patch(await request.body(), request.header(b"content-type"))
        options = write_options(
            request.query,
            request.user,
            request.header(b"user-agent"),
            "PatchOptions",
            patch_type=patch_type,
        )
        outcome = await self._service.patch(
            target.kind,
            target.namespace,
            target.name,
            patch_type,
            patch.document,
            options,
            subresource=target.subresource,
            problems=patch.problems,
        )
        return await self._object(request, target.kind, outcome)

    async def _delete(self, request: Request, target: Target) -> Answer:
        options = await self._delete_options(request)
        outcome = await self._service.delete(target.kind, target.namespace, target.name, options)
        return await self._object(
            request,
            target.kind,
            outcome,
            extra_warnings=self._deletion_warnings(target.kind, options),
        )

    async def _delete_collection(self, request: Request, target: Target) -> Answer:
        selection = list_options(request.query)
        options = await self._delete_options(request)
        outcome = await self._service.delete_collection(
            target.kind, target.namespace, selection, options
        )
        return await self._listing(
            request, target.kind, outcome, self._deletion_warnings(target.kind, options)
        )

    def _deletion_warnings(self, kind: Kind, options: DeleteOptions) -> Sequence[str]:
        surprising = self._service.strategies[kind.resource].default_propagation == "Orphan"
        return (_ORPHANS_WARNING,) if surprising and not options.propagation else ()

    async def _delete_options(self, request: Request) -> DeleteOptions:
        body = await request.body()
        if not body:
            return delete_options_from_query(request.query, request.user)
        document, _ = _decode_object(body, request)
        return delete_options_from_body(document, request.user)

    async def _document(self, request: Request) -> tuple[Document, Sequence[str]]:
        return _decode_object(await request.body(), request)

    # --- answering ------------------------------------------------------------------------

    async def _object(
        self,
        request: Request,
        kind: Kind,
        outcome: Outcome,
        *,
        extra_warnings: Sequence[str] = (),
    ) -> Answer:
        representation = negotiate(request.header(b"accept"))
        document = outcome.document
        if representation.form and not is_status(document):
            require_form(representation, kind, is_list=False)
            document = _EventLines(self._service, kind, representation, request).render(document)
        if representation.media == "yaml":
            document = await as_yaml(document)
        headers = warning_headers((*outcome.warnings, *extra_warnings))
        return Answer(outcome.code, document, representation.content_type.encode(), headers)

    async def _listing(
        self, request: Request, kind: Kind, outcome: ListOutcome, warnings: Sequence[str] = ()
    ) -> Answer:
        representation = negotiate(request.header(b"accept"))
        require_form(representation, kind, is_list=True)
        pieces: Iterator[bytes]
        if representation.form == "Table":
            pieces = table_pieces(
                outcome,
                self._service.strategies[kind.resource],
                parse_include_object(first(request.query, "includeObject")),
                self._service.clock.now(),
            )
        else:
            pieces = list_pieces(outcome, kind, representation.form)
        headers: tuple[Header, ...] = warning_headers(warnings)
        if representation.media == "yaml":
            document = await as_yaml(joined([piece async for piece in in_turns(b"", pieces)]))
            return Answer(200, document, representation.content_type.encode(), headers)
        start = next(pieces)
        following = next(pieces, None)
        if following is None:
            return Answer(200, start, headers=headers)
        return Answer(200, in_turns(start + following, pieces), headers=headers)


class _EventLines:
    """Renders documents in the form that one client asked for."""

    def __init__(
        self, service: "Service", kind: Kind, representation: Representation, request: Request
    ) -> None:
        self._strategy = service.strategies[kind.resource]
        self._clock = service.clock
        self._form = representation.form
        self._include = parse_include_object(first(request.query, "includeObject"))
        self._columns_sent = False

    def render(self, document: bytes) -> bytes:
        if self._form == "Table":
            with_columns, self._columns_sent = not self._columns_sent, True
            return object_table(
                document,
                self._strategy,
                self._include,
                self._clock.now(),
                with_columns=with_columns,
            )
        return metadata_only(document) if self._form else document

    def line(self, event: ServedEvent) -> bytes:
        if event.type == "BOOKMARK" and self._form == "Table":
            return watch_line(event.type, bookmark_table(event.document))
        return watch_line(event.type, self.render(event.document))


async def _begun(items: AsyncIterator[T], patience_seconds: float) -> "asyncio.Future[T | None]":
    """The first item on its way, None being the end. If it fails soon, that is raised here,
    while there is still time to answer with an error."""
    first_item = asyncio.ensure_future(anext(items, None))
    try:
        # What fails without waiting for anything has failed after two turns.
        for _ in range(2):
            await asyncio.sleep(0)
        if patience_seconds and not first_item.done():
            await asyncio.wait((first_item,), timeout=patience_seconds)
    except BaseException:
        first_item.cancel()
        raise
    if first_item.done():
        first_item.result()
    return first_item


async def _resumed(
    first_item: "asyncio.Future[bytes | None]", items: AsyncIterator[bytes]
) -> AsyncIterator[bytes]:
    try:
        item = await first_item
        while item is not None:
            yield item
            item = await anext(items, None)
    finally:
        first_item.cancel()
        await _close(items)


async def _close(items: AsyncIterator[object]) -> None:
    if isinstance(items, AsyncGenerator):
        await items.aclose()


async def _watch_lines(
    batches: AsyncIterator[Sequence[ServedEvent]],
    first_batch: "asyncio.Future[Sequence[ServedEvent] | None]",
    lines: _EventLines,
) -> AsyncIterator[bytes]:
    """Event lines, one piece per batch. A failure is the last event: the headers are gone."""
    try:
        try:
            events = await first_batch
            while events is not None:
                for start in range(0, len(events), _TURN):
                    yield b"".join(map(lines.line, events[start : start + _TURN]))
                    if start + _TURN < len(events):
                        await asyncio.sleep(0)
                events = await anext(batches, None)
        except ApiError as error:
            body = error_answer(error).body
            assert isinstance(body, bytes)
            yield watch_line("ERROR", body)
    finally:
        first_batch.cancel()
        await _close(batches)


def _decode_object(body: bytes, request: Request) -> tuple[Document, Sequence[str]]:
    document, problems = decode_body(body, request.header(b"content-type"))
    if not isinstance(document, dict):
        raise BadRequest("the body of the request must be an object")
    return document, problems
