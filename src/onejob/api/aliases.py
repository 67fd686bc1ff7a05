"""Kinds that are stored as another kind.

events.k8s.io/v1 Events are stored as core Events, and all versions of a custom resource are stored
in one version. `ConvertedKinds` validates a document as the kind that it claims to be, then calls
the service for the stored kind, converting in both directions.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from onejob.api.kinds.events import from_core, patch_to_core, to_core, validate_new_event
from onejob.api.reading import Reading
from onejob.api.strategy import Document
from onejob.api.writing.metadata import check_type, metadata_of
from onejob.api.writing.patching import json_patch, merge_patch
from onejob.api.yielding import INLINE_BYTES
from onejob.wire.errors import BadRequest, Conflict, ConversionFailed, Invalid, not_found
from onejob.wire.field_errors import FieldError
from onejob.wire.kinds import Kind
from onejob.wire.requests import (
    ListOptions,
    ListOutcome,
    Outcome,
    Target,
    WatchEvent,
    WatchOptions,
    WriteOptions,
)

if TYPE_CHECKING:
    from onejob.api.service import Service

T = TypeVar("T")

#: Attempts to patch an object that others change; the same as upstream's.
_TRIES: Final = 5


class ConvertedKinds:
    """API verbs of kinds that are stored under another kind or version: documents are translated
    both ways."""

    def __init__(self, service: "Service", reading: Reading) -> None:
        self._service = service
        self._reading = reading

    async def create(
        self,
        kind: Kind,
        namespace: str,
        body: Document,
        options: WriteOptions,
        problems: Sequence[str],
        size: int,
    ) -> Outcome:
        """Convert the object to its stored kind, create it, and return it as it is served."""
        names = self._translation(kind)
        warnings = await self._validate_body(kind, body, options, problems, size)

        def translate() -> Document:
            errors = [] if options.trusted else names.errors(body)
            if errors:
                raise Invalid(kind.kind, kind.group, metadata_of(body).get("name", ""), errors)
            return names.inward(body)

        stored = await names.finish(await self._run_off_loop(size, translate))
        options = replace(options, requested=kind)
        outcome = await self._service.create(names.stored, namespace, stored, options, size=size)
        return _with_warnings(await names.outcome(outcome), warnings)

    async def update(
        self,
        target: Target,
        body: Document,
        options: WriteOptions,
        problems: Sequence[str],
        size: int,
    ) -> Outcome:
        kind = target.kind
        names = self._translation(kind)
        warnings = await self._validate_body(kind, body, options, problems, size)
        outcome = await self._service.update(
            names.stored,
            target.namespace,
            target.name,
            await names.finish(await self._run_off_loop(size, lambda: names.inward(body))),
            replace(options, requested=kind),
            subresource=target.subresource,
            size=size,
        )
        return _with_warnings(await names.outcome(outcome), warnings)

    async def patch(
        self,
        target: Target,
        patch_type: str,
        body: Any,
        options: WriteOptions,
        problems: Sequence[str],
        size: int,
    ) -> Outcome:
        names = self._translation(target.kind)
        if isinstance(names, _WebhookTranslation):
            return await self._patch_converted(names, target, patch_type, body, options, size)
        return await names.outcome(
            await self._service.patch(
                names.stored,
                target.namespace,
                target.name,
                patch_type,
                names.patch_inward(body),
                replace(options, requested=target.kind),
                subresource=target.subresource,
                problems=problems,
                size=size,
            )
        )

    async def _patch_converted(
        self,
        names: "_WebhookTranslation",
        target: Target,
        patch_type: str,
        body: Any,
        options: WriteOptions,
        size: int,
    ) -> Outcome:
        """Patch an object in a version that only a webhook can convert to.

        The patch is applied to the converted object, and the result replaces the stored one if that
        is unchanged; otherwise it is tried again, as upstream does.
        """
        if patch_type == "apply":
            raise BadRequest(
                f"server-side apply in {target.kind.api_version} requires field managers of a "
                f"converted version; apply in {names.stored.api_version} instead"
            )
        conditional = isinstance(body, dict) and "resourceVersion" in (body.get("metadata") or {})
        for attempt in range(_TRIES):
            stored = self._service.store.newest(target.key)
            if stored is None:
                raise not_found(target.kind.resource, target.name)
            old = msgspec.json.decode(await names.outward(stored.value))
            new = json_patch(old, body) if patch_type == "json" else merge_patch(old, body)
            try:
                return await self.update(target, new, options, (), size + len(stored.value))
            except Conflict:
                if conditional or attempt == _TRIES - 1:
                    raise
        raise AssertionError("the last attempt returns or raises")

    async def get(self, kind: Kind, namespace: str, name: str) -> bytes:
        names = self._translation(kind)
        return await names.outward(self._service.stored(names.stored, namespace, name).value)

    async def list(self, kind: Kind, namespace: str, options: ListOptions) -> ListOutcome:
        names = self._translation(kind)
        return await names.listing(await self._reading.list(kind, namespace, options))

    async def watch(
        self, kind: Kind, namespace: str, options: WatchOptions
    ) -> AsyncGenerator[Sequence[WatchEvent], None]:
        names = self._translation(kind)
        async with aclosing(self._reading.watch(kind, namespace, options)) as batches:
            async for batch in batches:
                shown = await names.all_outward([event.document for event in batch])
                yield [
                    replace(event, document=document)
                    for event, document in zip(batch, shown, strict=True)
                ]

    def translated(self, documents: Sequence[Document], kind: Kind) -> Sequence[Document]:
        """Return Events in the form of the wanted one of their API groups."""
        shown = from_core if kind.stored_as else to_core
        return [
            document if document["apiVersion"] == kind.api_version else shown(document)
            for document in documents
        ]

    async def outcome(self, kind: Kind, outcome: Outcome) -> Outcome:
        """Return the outcome of a write with its document converted to the served kind."""
        return await self._translation(kind).outcome(outcome)

    async def listing(self, kind: Kind, outcome: ListOutcome) -> ListOutcome:
        """Return a list outcome with its documents converted to the served kind."""
        return await self._translation(kind).listing(outcome)

    def _translation(self, kind: Kind) -> "_Translation":
        """Return the translation between a kind and the one that it is stored as."""
        stored = self._service.kinds.by_resource[kind.storage]
        if not kind.custom:
            return _Translation(stored)
        if self._service.definitions.has_conversion_webhook(kind):
            return _WebhookTranslation(stored, kind, self._service)
        return _VersionTranslation(stored, kind, self._service)

    async def _validate_body(
        self,
        kind: Kind,
        body: Document,
        options: WriteOptions,
        problems: Sequence[str],
        size: int,
    ) -> Sequence[str]:
        """Return the warnings about a body, after validating it against its served schema."""
        check_type(kind, body)
        normalise = self._service.writes.normalise
        return await self._run_off_loop(size, lambda: normalise(kind, body, options, problems))

    async def _run_off_loop(self, size: int, work: Callable[[], T]) -> T:
        """Run `work` in the worker thread if the request is large."""
        return work() if size <= INLINE_BYTES else await self._service.worker.run(work)


class _Translation:
    """Conversion of Events between their two API groups."""

    def __init__(self, stored: Kind) -> None:
        self.stored = stored

    def errors(self, body: Document) -> list[FieldError]:
        """Return the errors that must be reported for the body as sent."""
        return validate_new_event(body)

    def inward(self, body: Document) -> Document:
        """Convert a request body from the served to the stored form."""
        return to_core(body)

    def patch_inward(self, patch: Any) -> Any:
        """Convert a patch from the served to the stored form."""
        return patch_to_core(patch)

    async def finish(self, body: Document) -> Document:
        """Complete the conversion of `inward`, with calls to other servers."""
        return body

    async def all_outward(self, documents: Sequence[bytes]) -> Sequence[bytes]:
        """Return stored documents in the served form, in order."""
        return [
            msgspec.json.encode(from_core(msgspec.json.decode(document))) for document in documents
        ]

    async def outward(self, document: bytes) -> bytes:
        """Convert one stored document to the served form."""
        (shown,) = await self.all_outward((document,))
        return shown

    async def outcome(self, outcome: Outcome) -> Outcome:
        """Return the outcome of a write with its document in the requested kind."""
        return replace(outcome, document=await self.outward(outcome.document))

    async def listing(self, outcome: ListOutcome) -> ListOutcome:
        """Return the list with its documents in the requested kind."""
        return replace(outcome, documents=tuple(await self.all_outward(outcome.documents)))


class _VersionTranslation(_Translation):
    """Conversion of a custom resource between two versions, which differ only in their schemas."""

    def __init__(self, stored: Kind, kind: Kind, service: "Service") -> None:
        super().__init__(stored)
        self._strategy = service.strategies[kind.strategy]

    def errors(self, body: Document) -> list[FieldError]:
        # Imported lazily; if custom resources exist, their modules are already loaded.
        from onejob.api.crd.strategy import CustomStrategy

        self._strategy.default(body)
        assert isinstance(self._strategy, CustomStrategy)
        return self._strategy.value_errors(body)

    def inward(self, body: Document) -> Document:
        self._strategy.default(body)
        return {**body, "apiVersion": self.stored.api_version}

    def patch_inward(self, patch: Any) -> Any:
        if isinstance(patch, dict) and "apiVersion" in patch:
            return {**patch, "apiVersion": self.stored.api_version}
        return patch

    async def all_outward(self, documents: Sequence[bytes]) -> Sequence[bytes]:
        return [self._strategy.shown(document) for document in documents]


class _WebhookTranslation(_VersionTranslation):
    """Conversion of a custom resource between two versions by the webhook of its definition."""

    def __init__(self, stored: Kind, kind: Kind, service: "Service") -> None:
        super().__init__(stored, kind, service)
        self._kind = kind
        if service.converter is None:
            raise ConversionFailed(
                f"conversion webhook for {kind.api_version}, Kind={kind.kind} failed: this server "
                f"calls no webhooks; use {stored.api_version}, in which objects are stored"
            )
        self._convert = service.converter

    def inward(self, body: Document) -> Document:
        self._strategy.default(body)
        return body

    async def finish(self, body: Document) -> Document:
        (converted,) = await self._convert((body,), self.stored)
        return converted

    async def all_outward(self, documents: Sequence[bytes]) -> Sequence[bytes]:
        stored = [msgspec.json.decode(document) for document in documents]
        converted = await self._convert(stored, self._kind)
        return [self._strategy.shown(msgspec.json.encode(document)) for document in converted]


def _with_warnings(outcome: Outcome, warnings: Sequence[str]) -> Outcome:
    return replace(outcome, warnings=(*warnings, *outcome.warnings))
