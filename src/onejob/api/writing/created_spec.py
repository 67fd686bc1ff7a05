"""What becomes of a new object's spec, remembered.

All Pods of a Job have the same spec, and a client that creates many objects mostly sends the same
one again. Where the rules for a kind's spec read nothing but the spec (`judges_spec_alone`), the
outcome of pruning, defaulting, preparing and validating it is kept by its bytes. Feature gates and
schema are those of one server, and so is the memory.

Fields that are each object's own (a Pod's hostname) are judged apart, so that the Pods of an
Indexed Job share an entry.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from onejob.api.schema.schema import Schema, WrongShape
from onejob.api.sections import Section, held, split
from onejob.api.security_warnings import security_warnings
from onejob.api.strategy import Document, Strategy
from onejob.api.writing.managed_fields import all_fields
from onejob.planning.pod.security import Means
from onejob.wire.kinds import BY_RESOURCE, Kind

Raw = msgspec.Raw

_REMEMBERED: Final = 256
#: Longer ones are judged each time: the memory is bounded in bytes, too.
_LONGEST: Final = 16 * 1024


@lru_cache(maxsize=8)
def _own_field(name: str) -> re.Pattern[bytes]:
    """A field that stands first and has a plain text; elsewhere it is part of the spec."""
    return re.compile(rb'\{"%b":"([^"\\]*)",' % name.encode())


class CreatedSpec(msgspec.Struct, frozen=True):
    """A spec that was found valid, as it is stored, and what else follows from it."""

    spec: Raw
    text: bytes
    #: The same, split.
    members: dict[str, Any]
    #: Shared by all objects that are made of it: nobody changes it in place.
    status: dict[str, Any]
    generation: int
    warnings: tuple[str, ...]
    #: What the creator owns of the spec, as in `fieldsV1`; empty for our own writers.
    owned: dict[str, Any]

    def with_own(self, own: dict[str, Any]) -> Raw | Section:
        """The spec of one object: fields of its own stand first."""
        return Section(own | self.members) if own else self.spec

    def owned_with(self, own: dict[str, Any]) -> dict[str, Any]:
        return {**{f"f:{field}": {} for field in own}, **self.owned}


class JudgedSpec(msgspec.Struct, frozen=True, gc=False):
    created: CreatedSpec
    #: Fields that are this object's own.
    own: dict[str, Any]
    #: The spec as it came, without these.
    text: bytes


class CreatedSpecs:
    def __init__(self, strategies: Mapping[str, Strategy], schema: Schema, means: Means) -> None:
        self._strategies = strategies
        self._schema = schema
        self._means = means
        self._judged = lru_cache(maxsize=_REMEMBERED)(self._judge)

    @property
    def judged(self) -> int:
        """How many specs are remembered."""
        return self._judged.cache_info().currsize

    def judge(self, kind: Kind, body: Document, *, trusted: bool) -> JudgedSpec | None:
        """What becomes of the spec. None where there is something to refuse or to warn of that the
        whole document is needed for."""
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
            except WrongShape:
                return None
            strategy.default(doc)
            # Before preparing: what the server makes up belongs to nobody.
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
