"""Cache of defaulted and validated specs of new objects.

All Pods of a Job have the same spec, and a client that creates many objects mostly sends the same
spec again. If the rules for a kind's spec read nothing but the spec (`judges_spec_alone`), the
result of pruning, defaulting, preparing and validating it is cached by its bytes. The result
depends on feature gates and schema, so each server has its own cache.

Fields that differ per object (a Pod's hostname) are validated apart, so that the Pods of an
Indexed Job share an entry.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from onejob.api.schema.schema import Schema, TypeMismatch
from onejob.api.sections import Section, held, split
from onejob.api.security_warnings import security_warnings
from onejob.api.strategy import Document, Strategy
from onejob.api.writing.managed_fields import all_fields
from onejob.planning.pod.security import Means
from onejob.wire.kinds import BY_RESOURCE, Kind

Raw = msgspec.Raw

_REMEMBERED: Final = 256
#: Maximum bytes of a cached spec. Longer specs are validated each time, which bounds the cache in
#: bytes as well.
_LONGEST: Final = 16 * 1024


@lru_cache(maxsize=8)
def _own_field(name: str) -> re.Pattern[bytes]:
    """Return a pattern for a spec that begins with this field and an unescaped string value.

    A field at any other position is treated as part of the spec.
    """
    return re.compile(rb'\{"%b":"([^"\\]*)",' % name.encode())


class CreatedSpec(msgspec.Struct, frozen=True):
    """A valid spec in its stored form, with the status, generation and warnings derived from it."""

    spec: Raw
    text: bytes
    #: The same spec, split into its members.
    members: dict[str, Any]
    #: Shared by all objects created from this spec; must not be modified in place.
    status: dict[str, Any]
    generation: int
    warnings: tuple[str, ...]
    #: Fields of the spec that the creator owns, as `fieldsV1`; empty for onejob's own writers.
    owned: dict[str, Any]

    def with_own(self, own: dict[str, Any]) -> Raw | Section:
        """Return the spec of one object, with its `own` fields first."""
        return Section(own | self.members) if own else self.spec

    def owned_with(self, own: dict[str, Any]) -> dict[str, Any]:
        return {**{f"f:{field}": {} for field in own}, **self.owned}


class JudgedSpec(msgspec.Struct, frozen=True, gc=False):
    created: CreatedSpec
    #: Fields that differ per object.
    own: dict[str, Any]
    #: The spec as received, without the fields in `own`.
    text: bytes


class CreatedSpecs:
    def __init__(self, strategies: Mapping[str, Strategy], schema: Schema, means: Means) -> None:
        self._strategies = strategies
        self._schema = schema
        self._means = means
        self._judged = lru_cache(maxsize=_REMEMBERED)(self._judge)

    @property
    def judged(self) -> int:
        """Return the number of cached specs."""
        return self._judged.cache_info().currsize

    def judge(self, kind: Kind, body: Document, *, trusted: bool) -> JudgedSpec | None:
        """Return the defaulted and validated spec of `body`, cached.

        None if the kind's spec cannot be validated alone, is too long, or causes an error or a
        schema warning; the caller then validates the whole document.
        """
        resource = kind.resource
        strategy = self._strategies[resource]
        if not strategy.judges_spec_alone:
            return None
        spec = held(body, "spec")
        if not isinstance(spec, dict | Raw):
            return None
        text = bytes(spec) if isinstance(spec, Raw) else msgspec.json.encode(spec)
        if len(text) > _LONGEST:
            return None
        own: dict[str, Any] = {}
        field = strategy.own_spec_field
        if field and (found := _own_field(field).match(text)):
            own = {field: found[1].decode()}
            if strategy.validate_own_spec_field(own[field]):
                return None
            text = b"{" + text[found.end() :]
        created = self._judged(resource, text, trusted)
        return None if created is None else JudgedSpec(created, own, text)

    def _judge(self, resource: str, text: bytes, trusted: bool) -> CreatedSpec | None:
        strategy, kind = self._strategies[resource], BY_RESOURCE[resource]
        doc: Document = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {},
            "spec": msgspec.json.decode(text),
        }
        owned: dict[str, Any] = {}
        if trusted:
            strategy.default(doc)
        else:
            type_ = self._schema.kind(kind.api_version, kind.kind)
            try:
                if self._schema.normalise(doc, type_):
                    return None
            except TypeMismatch:
                return None
            strategy.default(doc)
            # Before `prepare_create`: fields that the server generates have no owner.
            owned = split(msgspec.json.encode(all_fields(doc, type_, "").get("f:spec", {})))
        strategy.prepare_create(doc)
        if strategy.validate_new_spec(doc["spec"]):
            return None
        strategy.default(doc)
        warnings = strategy.spec_warnings(doc["spec"])
        warnings += security_warnings(kind, doc, self._means)
        encoded = msgspec.json.encode(doc["spec"])
        return CreatedSpec(
            Raw(encoded),
            encoded,
            split(encoded),
            doc["status"],
            doc["metadata"]["generation"],
            tuple(warnings),
            owned,
        )
