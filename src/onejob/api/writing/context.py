"""Shared base of all writes: dependencies, pruning of request bodies, staging of documents."""

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Final

import msgspec
from msgspec import Struct

from onejob.api.admission.admission import Admission
from onejob.api.admission.dynamic.plugins import Reviewer, Settle
from onejob.api.documents import at_revision, decode
from onejob.api.schema.schema import Schema, Type, all_problems
from onejob.api.strategy import Document, Guard, Strategy
from onejob.api.writing.metadata import ordered
from onejob.api.writing.templates import Template
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

_encode = msgspec.json.encode


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
    #: Namespace policies and quotas for created and updated objects.
    admission: Admission
    #: Whether writes are checked against quotas here. If False, the caller that stages the write
    #: checks them (`rehearsal`).
    asks_quotas: bool = True
    #: Dynamic admission of this write; None if no configuration concerns it.
    reviewer: Reviewer | None = None
    #: Called with each object before its removal is staged; not in a rehearsal.
    on_removal: Callable[[Stored], None] | None = None
    #: Evaluated templates of Pods, by namespace and document.
    templates: dict[tuple[str, bytes], Template] = msgspec.field(default_factory=dict)

    def _read_existing(self, target: Target) -> tuple[Stored, Document]:
        """Return the stored object and its decoded document. Raises NotFound."""
        stored = self.store.newest(target.key)
        if stored is None:
            raise not_found(target.kind.resource, target.name)
        return stored, decode(stored.value)

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
        metadata = doc["metadata"]

        def encode(revision: int) -> bytes:
            metadata["resourceVersion"] = str(revision)
            value = _encode(doc)
            return value if len(value) <= largest else bounded(value, largest)

        cold = is_cold(key.resource, metadata, doc)
        staged = self.store.stage(key, expected, encode, cold=cold, quiet=quiet)
        assert staged is not None, "only a deletion leaves nothing behind"
        return staged

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
    ) -> list[str]:
        """Prune the body to the schema in place, and return warnings.

        `options.field_validation` decides whether problems become an error, warnings or nothing.
        Sections shared with `old` are not checked again.
        """
        if options.trusted:
            return []
        found = all_problems(self.pruned(kind, body, old), problems)
        return apply_field_validation(found, options, partial(strict_decoding_error, kind))

    def pruned(self, kind: Kind, body: Document, old: Document | None) -> list[str]:
        """Prune the new sections of `body` in place, and return the problems found in them."""
        type_ = self.type_of(kind)
        part = {
            name: value
            for name, value in body.items()
            # Fields with an alias must be checked under both names.
            if type_.aliases or old is None or old.get(name) is not value
        }
        names = list(part)
        found = self.schema.normalise(part, type_)
        for name in names:
            if name not in part:
                del body[name]
        body.update(part)
        return found

    def settle_mutated(self, kind: Kind, old: Document | None = None) -> Settle:
        """Return the function that prunes a mutated object and adds its defaults."""

        def settle(document: Document) -> Document:
            self.pruned(kind, document, None)
            self.strategies[kind.resource].default(document, old)
            return ordered(kind, document)

        return settle

    def remove(self, stored: Stored) -> Outcome:
        """Stage the removal of an object without finalizers or grace period.

        The outcome has its last state with the revision of the removal.
        """
        if self.on_removal is not None:
            self.on_removal(stored)
        self.store.stage(stored.key, stored.revision, None)
        revision = self.store.staged_revision
        return Outcome(200, at_revision(stored.value, stored.revision, revision), revision)


def largest_size(options: WriteOptions) -> int:
    """Return the maximum size of a document in bytes; unlimited for onejob's own writers.

    onejob's additions to an object (its status) are never refused.
    """
    return sys.maxsize if options.trusted else MAX_OBJECT_BYTES


def bounded(value: bytes, largest: int) -> bytes:
    """Return the value. Raises RequestTooLarge if it is longer than `largest`."""
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


def apply_field_validation(
    problems: Sequence[str], options: WriteOptions, strict: Callable[[str], ApiError]
) -> list[str]:
    """Return the problems as warnings, or raise, according to the request's fieldValidation."""
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
            return doc.get("status", {}).get("phase") in ("Succeeded", "Failed")
        case "jobs.batch":
            return is_finished(doc)
        case "events":
            return True
        case _:
            return False
