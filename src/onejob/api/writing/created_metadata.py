"""Cache of validated metadata for new objects with a generated name.

All Pods of a Job are created with the same metadata, or with metadata that differs only in an
index. The result of pruning, preparing and validating it is cached by its bytes, for kinds whose
rules for the spec do not read the metadata (`judges_spec_alone`). The fields that each object gets
of its own (name, UID, time) are added to a copy.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from onejob.api.kinds.metadata import validate_metadata_fields
from onejob.api.schema.schema import Schema, TypeMismatch
from onejob.api.sections import Raw, decode, held, split
from onejob.api.strategy import Document, Strategy
from onejob.api.writing.managed_fields import all_fields
from onejob.api.writing.metadata import drop_empty, prepare_brought, with_suffix
from onejob.wire.errors import ApiError
from onejob.wire.kinds import BY_RESOURCE, Kind

_REMEMBERED: Final = 256
#: Maximum bytes of cached metadata. Longer metadata is validated each time, which bounds the cache
#: in bytes as well.
_LONGEST: Final = 8 * 1024
_OWN: Final[tuple[str, ...]] = ("labels", "annotations")


class CreatedMetadata(msgspec.Struct, frozen=True):
    """Valid metadata of a new object, without name, UID and time.

    Objects created from it share its parts; callers must not modify these in place.
    """

    generate_name: str
    fields: dict[str, Any]
    #: Fields that the creator owns, as `fieldsV1`; empty for onejob's own writers.
    owned: dict[str, Any]


class CreatedMetadatas:
    def __init__(self, strategies: Mapping[str, Strategy], schema: Schema) -> None:
        self._strategies = strategies
        self._schema = schema
        self._judged = lru_cache(maxsize=_REMEMBERED)(self._judge)
        self._rest = lru_cache(maxsize=_REMEMBERED)(self._judge_rest)

    def judge(
        self, kind: Kind, namespace: str, body: Document, *, trusted: bool
    ) -> CreatedMetadata | None:
        """Return the validated metadata of `body`, cached.

        None if the object has a name, or if the metadata causes an error or a warning; the caller
        then validates the whole document.
        """
        metadata = held(body, "metadata")
        text = bytes(metadata) if type(metadata) is Raw else msgspec.json.encode(metadata)
        if len(text) > _LONGEST or b'"generateName"' not in text:
            # Metadata with a name occurs only once, so caching it is useless.
            return None
        return self._judged(kind.resource, namespace, text, trusted)

    def _judge(
        self, resource: str, namespace: str, text: bytes, trusted: bool
    ) -> CreatedMetadata | None:
        """Return validated metadata, or None as in `judge`.

        Labels and annotations are validated apart from the rest, because those of an Indexed Job's
        Pods contain an index.
        """
        metadata = decode(text)
        if not isinstance(metadata, dict):
            return None
        own: dict[str, Any] = {name: metadata[name] for name in _OWN if name in metadata}
        rest = {name: value for name, value in metadata.items() if name not in _OWN}
        judged = self._rest(resource, namespace, msgspec.json.encode(rest), trusted)
        if judged is None:
            return None
        if not trusted and not self._has_right_shape(resource, own):
            return None
        drop_empty(own)
        if validate_metadata_fields(own, "metadata"):
            return None
        known = judged.fields
        fields = {name: own.get(name, known.get(name)) for name in metadata}
        fields = {name: value for name, value in fields.items() if value is not None} | known
        owned: dict[str, Any] = {}
        if not trusted:
            kind = BY_RESOURCE[resource]
            type_ = self._schema.kind(kind.api_version, kind.kind)
            owned = split(msgspec.json.encode(all_fields({"metadata": fields}, type_, "")))
        return CreatedMetadata(judged.generate_name, fields, owned)

    def _judge_rest(
        self, resource: str, namespace: str, text: bytes, trusted: bool
    ) -> CreatedMetadata | None:
        strategy, kind = self._strategies[resource], BY_RESOURCE[resource]
        metadata = decode(text)
        if not trusted and not self._has_right_shape(resource, metadata):
            return None
        try:
            prepare_brought(kind, namespace, metadata, dry_run=False)
        except ApiError:
            return None
        prefix = metadata.get("generateName")
        if not prefix or metadata.pop("name", ""):
            return None
        # All suffixes use the same character class, so validating one name covers all of them.
        name = with_suffix(prefix, 0)
        named: Document = {"metadata": {**metadata, "name": name}}
        if strategy.validate_new_metadata(named) or strategy.name_warnings(name):
            return None
        return CreatedMetadata(prefix, metadata, {})

    def _has_right_shape(self, resource: str, metadata: dict[str, Any]) -> bool:
        """Prune the metadata in place, and return whether it conforms to the schema."""
        kind = BY_RESOURCE[resource]
        type_ = self._schema.kind(kind.api_version, kind.kind)
        try:
            return not self._schema.normalise({"metadata": metadata}, type_)
        except TypeMismatch:
            return False
