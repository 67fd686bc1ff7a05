"""Bodies that were created a moment ago and are created again: all Pods of a Job are made of one.

What is found out about such a body does not depend on the single object: that its type is right,
what becomes of its sections, that its namespace is there and says nothing about it. It holds until
some namespace says something else, which `Admission.generation` counts. A body is recognised by the
very objects that it is made of, so this is only for writers that split a document once and create
it many times.
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
    """What all objects that are created of one body have in common."""

    kind: Kind
    namespace: str
    options: WriteOptions
    brought: CreatedMetadata
    judged: JudgedSpec
    #: Of `Admission`, when this was found out.
    generation: int


class KnownCreations:
    def __init__(self) -> None:
        #: By the identity of the body's metadata, which is kept with it and so stays its own.
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
        """Nobody may change the body after this."""
        if len(self._known) >= _MOST:
            del self._known[next(iter(self._known))]
        self._known[id(held(body, "metadata"))] = (body, creation)
