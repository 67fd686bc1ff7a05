"""What all writes share: what they know, how bodies are pruned, how documents are staged."""

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

#: What etcd takes of one object.
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
    #: By resource: may this user make such an object of it? Raises Forbidden.
    guards: Mapping[str, Guard]
    created_specs: CreatedSpecs
    created_metadata: CreatedMetadatas
    #: What namespaces say about objects that come into them.
    admission: Admission
    #: Whether quotas are asked here; if not, then by whoever stages the write.
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
        """Raises RequestTooLarge for a document of more than `largest` bytes. The revision is
        written into the document."""
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
        """Prune the body to the schema; what was wrong becomes an error, warnings or nothing. What
        is `known` to be in order, or stored like that, is not looked at."""
        if options.trusted:
            return []
        found = all_problems(self.pruned(kind, body, old, known), problems)
        return judge_problems(found, options, partial(strict_decoding_error, kind))

    def pruned(
        self, kind: Kind, body: Document, old: Document | None, known: frozenset[str] = NOTHING
    ) -> list[str]:
        """What was found wrong in those sections of `body` that are new."""
        type_ = self.type_of(kind)
        part = {
            name: plain(value)
            for name, value in members(body)
            # A field with two names is looked at under both.
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
        """Take an object away that nothing holds. The answer is its last state, with the
        revision of its end."""
        self.store.stage(stored.key, stored.revision, None)
        revision = self.store.staged_revision
        return Outcome(200, at_revision(stored.value, stored.revision, revision), revision)


def largest_size(options: WriteOptions) -> int:
    """What onejob itself adds to an object (its status) is never refused."""
    return sys.maxsize if options.trusted else MAX_OBJECT_BYTES


def bounded(value: bytes, largest: int) -> bytes:
    if len(value) > largest:
        # Upstream says the first words with 500; but it is the request that is wrong, and 500
        # has clients try again.
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
    """Whether this version will rarely be read again, so that it need not stay in memory."""
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
