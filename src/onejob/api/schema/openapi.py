"""OpenAPI documents, generated from the schema on demand.

There is one v3 document per group version, and one v2 document of all groups. kubectl uses them to
explain fields, to detect server-side field validation, and to find out how lists are merged when it
computes a patch; releases before 1.27 use only v2.
"""

import asyncio
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, TypeAlias

import msgspec

from onejob.api.schema.added_kinds import added_definitions
from onejob.api.schema.describing import described_definition
from onejob.api.schema.openapi_paths import (
    PATCH,
    REFERENCE,
    WATCH_EVENT,
    group_path,
    names_by_kind,
    paths_of,
)
from onejob.api.schema.schema import Schema, load_definitions
from onejob.wire.kinds import Kind
from onejob.wire.registry import KindRegistry, KindsChanged

#: Additions to the generated definitions of types with a special JSON representation.
_SPECIAL: Final[dict[str, dict[str, Any]]] = {
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {
        "format": "int-or-string",
        "oneOf": [{"type": "integer"}, {"type": "string"}],
    },
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {
        "oneOf": [{"type": "string"}, {"type": "number"}],
    },
    PATCH: {
        "description": "A patch of the object, in the form that the content type names.",
        "type": "object",
    },
    WATCH_EVENT: {
        "description": "A change of an object that is watched.",
        "type": "object",
        "required": ["type", "object"],
        "properties": {
            "object": {"description": "The object, or a Status.", "type": "object"},
            "type": {
                "description": "ADDED, MODIFIED, DELETED, BOOKMARK or ERROR.",
                "type": "string",
            },
        },
    },
}


#: Maximum number of attempts if kinds change while documents are generated.
_ROUNDS: Final = 3

#: OpenAPI v3 definitions by name, as in `Schema.added`.
_Definitions: TypeAlias = Mapping[str, dict[str, Any]]


class OpenApiDocuments:
    """Cache of OpenAPI documents.

    Each is generated on the first request, and again when the kinds that it describes have changed.
    """

    def __init__(self, schema: Schema, kinds: KindRegistry) -> None:
        self._schema = schema
        self._kinds = kinds
        self._made: dict[str, tuple[bytes, str]] = {}
        #: Encoded definitions. Groups share most of them (Pods occur everywhere), so each is
        #: encoded once.
        self._encoded: dict[str, msgspec.Raw] = {}
        self._made_v2: dict[bool, tuple[int, tuple[bytes, str]]] = {}
        self._making = asyncio.Lock()
        #: Group versions that have changed since generation last started.
        self._changed_paths: set[str] = set()
        self._kinds_by_path = _by_path(kinds)
        kinds.subscribe(self._kinds_changed)

    def _kinds_changed(self, change: KindsChanged) -> None:
        self._kinds_by_path = _by_path(self._kinds)
        for kind in (*change.added, *change.removed):
            self._made.pop(group_path(kind), None)
            self._changed_paths.add(group_path(kind))

    async def prepare(self) -> None:
        """Generate all v3 documents in a thread, because it takes a tenth of a second.

        Afterwards, `root` and `document` have nothing left to generate, or little if kinds keep
        changing: waiting for the last change could take forever.
        """
        async with self._making:
            for _ in range(_ROUNDS):
                missing = self._missing()
                if not missing:
                    break
                # Registry and schema may change while the thread works. It gets copies, and only
                # documents of changed groups are generated again.
                self._changed_paths = set()
                made = await asyncio.to_thread(self._make_all, missing, self._schema.added)
                for path in made.keys() - self._changed_paths:
                    self._made[path] = made[path]
            else:
                return
            self._release()

    def root(self) -> bytes:
        """Return the document of `/openapi/v3`: the URL of each group version's document, with its
        hash."""
        paths = {}
        for path in self._kinds_by_path:
            made = self.document(path)
            assert made is not None, f"no document for {path}"
            paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={made[1]}"}
        return msgspec.json.encode({"paths": paths})

    def document(self, path: str) -> tuple[bytes, str] | None:
        """Return the document of a group version (`api/v1`, `apis/batch/v1`) and its hash; None if
        it is not served."""
        if path not in self._kinds_by_path:
            return None
        if path not in self._made:
            self._made[path] = self._make(self._kinds_by_path[path], self._schema.added)
            if len(self._made) == len(self._kinds_by_path):
                self._release()
        return self._made[path]

    async def version_2(self, *, protobuf: bool) -> tuple[bytes, str]:
        """Return the v2 document of all groups and its hash.

        Generated in a thread: it takes a tenth of a second, and few clients request it.
        """
        async with self._making:
            made = self._made_v2.get(protobuf)
            if made is None or made[0] != self._kinds.generation:
                from onejob.api.schema.openapi_v2 import version_2_document

                # Read here: registry and schema may change while the thread works.
                generation, kinds = self._kinds.generation, self._kinds.kinds
                release, added = self._schema.release, self._schema.added
                document = await asyncio.to_thread(
                    version_2_document, release, kinds, added, protobuf=protobuf
                )
                made = self._made_v2[protobuf] = generation, document
            return made[1]

    def _missing(self) -> dict[str, list[Kind]]:
        """Return the kinds of each group version whose document is not generated yet."""
        return {
            path: kinds for path, kinds in self._kinds_by_path.items() if path not in self._made
        }

    def _make_all(
        self, missing: Mapping[str, Sequence[Kind]], added: _Definitions
    ) -> dict[str, tuple[bytes, str]]:
        return {path: self._make(kinds, added) for path, kinds in missing.items()}

    def _make(self, kinds: Sequence[Kind], added: _Definitions) -> tuple[bytes, str]:
        """Return body and ETag of the document of a group."""
        body = msgspec.json.encode(self._group_document(kinds, added))
        return body, hashlib.sha256(body).hexdigest().upper()

    def _release(self) -> None:
        """Release the definitions, which are not needed until kinds change."""
        self.__dict__.pop("_sources", None)
        self._encoded = {}

    @cached_property
    def _sources(self) -> tuple[dict[str, Any], dict[str, dict[str, str]]]:
        """Definitions and their documentation, loaded on first use."""
        return load_definitions()

    def _group_document(self, kinds: Sequence[Kind], added: _Definitions) -> dict[str, Any]:
        own = added_definitions(kinds, added, self._sources[1])
        definitions = self._sources[0] | own
        names = names_by_kind(definitions)
        paths: dict[str, Any] = {}
        for kind in kinds:
            paths |= paths_of(kind, names)
        needed = _closure((name for name in _names_in(paths) if name in definitions), definitions)
        schemas: dict[str, Any] = {
            name: own[name] if name in own else self._definition(name) for name in sorted(needed)
        }
        schemas |= {name: _SPECIAL[name] for name in (PATCH, WATCH_EVENT)}
        return {
            "openapi": "3.0.0",
            "info": {"title": "Kubernetes", "version": self._schema.release},
            "paths": paths,
            "components": {"schemas": schemas},
        }

    def _definition(self, name: str) -> msgspec.Raw:
        """Return an encoded definition, from a cache."""
        encoded = self._encoded.get(name)
        if encoded is None:
            definitions, documentation = self._sources
            described = described_definition(definitions[name], documentation[name], _wrapped)
            described |= _SPECIAL.get(name, {})
            # Another thread may release all of these at any time.
            encoded = self._encoded[name] = msgspec.Raw(msgspec.json.encode(described))
        return encoded


def _by_path(kinds: KindRegistry) -> dict[str, list[Kind]]:
    found: dict[str, list[Kind]] = {}
    for kind in kinds.kinds:
        found.setdefault(group_path(kind), []).append(kind)
    return found


def _wrapped(name: str) -> dict[str, Any]:
    """Return a wrapped reference: in OpenAPI v3, siblings of a bare $ref are ignored."""
    return {"allOf": [{"$ref": REFERENCE + name}]}


def _closure(roots: Iterable[str], definitions: dict[str, Any]) -> set[str]:
    """Return the names of the definitions that the roots refer to, directly or not."""
    found: set[str] = set()
    waiting = list(roots)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting.extend(_names_in(definitions[name]))
    return found


def _names_in(value: Any) -> Iterator[str]:
    """Yield the names of all definitions that a value refers to."""
    if isinstance(value, dict):
        reference = value.get("$ref")
        if isinstance(reference, str):
            yield reference.removeprefix(REFERENCE)
        for item in value.values():
            yield from _names_in(item)
    elif isinstance(value, list):
        for item in value:
            yield from _names_in(item)
