"""Cache of create requests by body identity, for bodies that are created many times.

All Pods of a Job are created from one body. The results of checking it do not depend on the single
object: its type is right, its sections are validated, its namespace exists and has no policy that
applies to it. An entry is valid until a namespace policy changes, which `Admission.generation`
counts. A body is recognised by the identity of its member objects, so the cache serves only writers
that split a document once and create it many times.
"""

from typing import Final

from msgspec import Struct

from onejob.api.sections import held
from onejob.api.strategy import Document
from onejob.api.writing.created_metadata import CreatedMetadata
from onejob.api.writing.created_spec import JudgedSpec
from onejob.wire.kinds import Kind
from onejob.wire.requests import WriteOptions

_MOST: Final = 16


class KnownCreation(Struct, frozen=True, gc=False):
    """Validated parts shared by all objects that are created from one body."""

    kind: Kind
    namespace: str
    options: WriteOptions
    brought: CreatedMetadata
    judged: JudgedSpec
    #: `Admission.generation` at the time of the checks.
    generation: int


class KnownCreations:
    def __init__(self) -> None:
        #: By `id` of the body's metadata. The body is kept in the entry, so the id stays unique.
        self._known: dict[int, tuple[Document, KnownCreation]] = {}

    def find(
        self, kind: Kind, namespace: str, body: Document, options: WriteOptions, generation: int
    ) -> KnownCreation | None:
        found = self._known.get(id(held(body, "metadata")))
        if found is None:
            return None
        known_body, creation = found
        if (
            creation.generation == generation
            and creation.options is options
            and creation.kind is kind
            and creation.namespace == namespace
            and held(body, "spec") is held(known_body, "spec")
            and held(body, "kind") is held(known_body, "kind")
            and held(body, "apiVersion") is held(known_body, "apiVersion")
            and body.keys() == known_body.keys()
        ):
            return creation
        return None

    def keep(self, body: Document, creation: KnownCreation) -> None:
        """Cache a creation, evicting the oldest entry if full. The body must not change after."""
        if len(self._known) >= _MOST:
            del self._known[next(iter(self._known))]
        self._known[id(held(body, "metadata"))] = (body, creation)
