"""Shared base of all writes: dependencies, pruning of request bodies, staging of documents."""

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any, Final

import msgspec
from msgspec import Struct

from onejob.api.admission.admission import Admission
from onejob.api.schema.schema import Schema, Type, all_problems
from onejob.api.sections import (
    SectionedDocument,
    at_revision,
    held,
    members,
    plain,
    same_bytes,
    text_of,
)
from onejob.api.strategy import Document, Guard, Strategy
from onejob.api.writing.created_metadata import CreatedMetadatas
from onejob.api.writing.created_spec import CreatedSpecs
from onejob.api.writing.known_creations import KnownCreations
from onejob.api.writing.recent_documents import RecentDocuments
from onejob.clock import Clock
from onejob.objects.job import is_finished
from onejob.objects.meta import Key
from onejob.planning.pod.security import Means
from onejob.store.base import StagingStore, Stored
from onejob.wire.errors import (
    ApiError,
    BadRequest,
    RequestTooLarge,
    not_found,
)
from onejob.wire.kinds import Kind
from onejob.wire.requests import Outcome, Target, WriteOptions

#: Maximum size of one object; the same as etcd's request limit.
MAX_OBJECT_BYTES: Final = 1536 * 1024

NOTHING: Final[frozenset[str]] = frozenset()

_encode = msgspec.json.encode
_decode: Callable[[bytes], Document] = msgspec.json.Decoder(dict[str, Any]).decode


class WriteContext(Struct, frozen=True):
    store: StagingStore
    strategies: Mapping[str, Strategy]
    schema: Schema
    clock: Clock
    rng: Random
    #: How the node enforces a securityContext.
    means: Means
    #: Authorization hooks by resource; see `Guard`. They raise Forbidden.
    guards: Mapping[str, Guard]
    created_specs: CreatedSpecs
    created_metadata: CreatedMetadatas
    #: Namespace policies and quotas for created and updated objects.
    admission: Admission
    #: Whether writes are checked against quotas here. If False, the caller that stages the write
    #: checks them (`rehearsal`).
    asks_quotas: bool = True
    recent: RecentDocuments = msgspec.field(default_factory=RecentDocuments)
    known_creations: KnownCreations = msgspec.field(default_factory=KnownCreations)

    def _existing(self, target: Target) -> tuple[Stored, Document]:
        stored = self.store.newest(target.key)
        if stored is None:
            raise not_found(target.kind.resource, target.name)
        return stored, self.document(target.kind, stored)

    def stage(
        self,
        key: Key,
        expected: int,
        doc: Document,
        largest: int = sys.maxsize,
        *,
        quiet: bool = False,
    ) -> Stored:
        """Stage a document, with the new revision as its resourceVersion.

        Raises RequestTooLarge if the document takes more than `largest` bytes.
        """
        metadata = held(doc, "metadata")
        if type(metadata) is msgspec.Raw:
            metadata = doc["metadata"]

        def encode(revision: int) -> bytes:
            metadata["resourceVersion"] = str(revision)
            value = _encode(doc)
            return value if len(value) <= largest else bounded(value, largest)

        cold = is_cold(key.resource, metadata, doc)
        staged = self.store.stage(key, expected, encode, cold=cold, quiet=quiet)
        assert staged is not None, "only a deletion leaves nothing behind"
        if (
            not cold
            and isinstance(doc, SectionedDocument)
            and self.strategies[key.resource].keeps_documents
        ):
            self.recent.keep(staged, doc)
        return staged

    def document(self, kind: Kind, stored: Stored) -> Document:
        # The rules of custom kinds are evaluated on plain values.
        return _decode(stored.value) if kind.custom else self.recent.take(stored)

    def type_of(self, kind: Kind) -> Type:
        return self.schema.kind(kind.api_version, kind.kind)

    def normalise(
        self,
        kind: Kind,
        body: Document,
        options: WriteOptions,
        problems: Sequence[str],
        *,
        old: Document | None = None,
        known: frozenset[str] = NOTHING,
    ) -> list[str]:
        """Prune the body to the schema in place, and return warnings.

        `options.field_validation` decides whether problems become an error, warnings or nothing.
        Sections in `known`, and sections equal to those of `old`, are not checked again.
        """
        if options.trusted:
            return []
        found = all_problems(self.pruned(kind, body, old, known), problems)
        return judge_problems(found, options, partial(strict_decoding_error, kind))

    def pruned(
        self, kind: Kind, body: Document, old: Document | None, known: frozenset[str] = NOTHING
    ) -> list[str]:
        """Prune the new sections of `body` in place, and return the problems found in them."""
        type_ = self.type_of(kind)
        part = {
            name: plain(value)
            for name, value in members(body)
            # Fields with an alias must be checked under both names.
            if type_.aliases
            or not (
                name in known
                or (old is not None and (held(old, name) is value or same_bytes(body, old, name)))
            )
        }
        names = list(part)
        found = self.schema.normalise(part, type_)
        for name in names:
            if name not in part:
                del body[name]
        body.update(part)
        return found

    def remove(self, stored: Stored) -> Outcome:
        """Stage the removal of an object without finalizers or grace period.

        The outcome has its last state with the revision of the removal.
        """
        self.store.stage(stored.key, stored.revision, None)
        revision = self.store.staged_revision
        return Outcome(200, at_revision(stored.value, stored.revision, revision), revision)


def largest_size(options: WriteOptions) -> int:
    """Return the maximum size of a document in bytes; unlimited for onejob's own writers.

    onejob's additions to an object (its status) are never refused.
    """
    return sys.maxsize if options.trusted else MAX_OBJECT_BYTES


def bounded(value: bytes, largest: int) -> bytes:
    if len(value) > largest:
        # Upstream sends the first part of this message with code 500. The request is at fault,
        # though, and 500 makes clients retry.
        raise RequestTooLarge(
            f"etcdserver: request is too large: the object takes {len(value)} bytes, the limit "
            f"is {MAX_OBJECT_BYTES}"
        )
    return value


def strict_decoding_error(kind: Kind, text: str) -> BadRequest:
    return BadRequest(
        f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: '
        f"strict decoding error: {text}"
    )


def judge_problems(
    problems: Sequence[str], options: WriteOptions, strict: Callable[[str], ApiError]
) -> list[str]:
    if not problems or options.field_validation == "Ignore":
        return []
    if options.field_validation == "Strict":
        raise strict(", ".join(problems))
    return list(problems)


def is_cold(resource: str, metadata: Document, doc: Document) -> bool:
    """Return whether this version will rarely be read again and need not stay in memory."""
    match resource:
        case "pods":
            if "finalizers" in metadata:
                return False
            status = held(doc, "status", {})
            if type(status) is msgspec.Raw:
                status = doc["status"]
            return text_of(status, "phase") in ("Succeeded", "Failed")
        case "jobs.batch":
            return is_finished(doc)
        case "events":
            return True
        case _:
            return False
