"""Patches of one section of a Pod by onejob's own writers, without decoding the rest.

A Pod gets two of these: its node writes the status, and its Job removes the finalizer. Both change
one section, and in most cases no rule depends on any other; then the rest of the document goes back
into the store byte for byte. `Writes.patch` handles all other cases and is the reference for these.

A stored document contains no null and no field without meaning to its kind, and its strings are
escaped. So the text of a member such as `"deletionTimestamp":` occurs in the metadata only where
the field is.
"""

from functools import lru_cache
from itertools import product
from typing import Any, Final, Protocol

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from onejob.api.documents import decode
from onejob.api.kinds.pod.update import validate_pod_status_change
from onejob.api.schema.shapes import ObjectShape
from onejob.api.writing.strategic_merge import strategic_merge
from onejob.objects.meta import Key
from onejob.objects.pod_status import ConditionReport, PodStatusPatch
from onejob.store.base import Stored

_encode = msgspec.json.encode


class PodPatch(Protocol):
    """A strategic merge patch of a Pod."""

    @property
    def key(self) -> Key: ...

    @property
    def subresource(self) -> str: ...

    @property
    def content(self) -> bytes | PodStatusPatch:
        """The patch, or the value that it is encoded from."""

    @property
    def body(self) -> bytes:
        """The encoded patch."""
        ...


class _PatchedMetadata(Struct, frozen=True, forbid_unknown_fields=True):
    #: Precondition; "" for none.
    uid: str = ""
    removed_finalizers: tuple[str, ...] = field(
        default=(), name="$deleteFromPrimitiveList/finalizers"
    )


class SectionPatch(Struct, frozen=True, forbid_unknown_fields=True):
    """A strategic merge patch that removes finalizers, or sets the status of a Pod."""

    metadata: _PatchedMetadata = _PatchedMetadata()
    status: dict[str, Any] | UnsetType = UNSET


class SectionWrite(Struct, frozen=True, gc=False):
    """Document to stage; it consists of the parts before and after its resourceVersion."""

    before: bytes
    after: bytes
    #: Whether this version will rarely be read again.
    cold: bool = False
    #: Whether no controller has to react.
    quiet: bool = False
    #: See `Stored`.
    tail: tuple[int, int] | None = None
    #: See `Change`.
    finalizers: tuple[str, ...] | None = None

    def at(self, revision: int) -> bytes:
        """Return the document as written at this revision."""
        return b'%b"resourceVersion":"%d"%b' % (self.before, revision, self.after)


class _Sections(Struct, forbid_unknown_fields=True):
    """A Pod of which nothing is decoded."""

    api_version: str = field(name="apiVersion")
    kind: str
    metadata: Raw
    spec: Raw
    status: Raw


_read = msgspec.json.Decoder(SectionPatch).decode
_read_sections = msgspec.json.Decoder(_Sections).decode
#: Pods created within a second from one template have the same status.
_read_status = lru_cache(maxsize=64)(decode)
_FINAL: Final = ("Succeeded", "Failed")
_SPEC: Final = len(b',"spec":')
_STATUS: Final = len(b',"status":')


def read_section_patch(content: bytes | PodStatusPatch) -> SectionPatch | None:
    """Return the patch, or None if it changes anything else or has further directives."""
    if type(content) is PodStatusPatch:
        for one in content.status.conditions:
            if type(one) is not ConditionReport or one.reason is None or one.message is None:
                return None
        # Tuples occur on this level only. They would differ from the lists of the stored status.
        status = {
            name: list(value) if type(value) is tuple else value
            for name, value in msgspec.to_builtins(content.status).items()
        }
        return SectionPatch(_PatchedMetadata(content.metadata.uid), status)
    try:
        patch = _read(content)
    except msgspec.ValidationError:
        return None
    if patch.status is not UNSET and (b'"$' in content or b"null" in content):
        return None
    return patch


def patch_section(
    stored: Stored, patch: SectionPatch, shape: ObjectShape
) -> SectionWrite | Stored | None:
    """Return the write for a patch; `stored` itself if the patch changes nothing.

    None if rules other than those of this module apply. `shape` is that of a Pod.
    """
    tail = stored.tail or _tail_of(stored.value)
    if tail is None:
        return None
    value = stored.value
    # Offsets from the end of the document.
    status_at = -tail[1] - 1
    spec_at = status_at - _STATUS - tail[0]
    head, rest = value[: spec_at - _SPEC], value[spec_at - _SPEC :]
    uid = patch.metadata.uid
    if (
        b'"deletionTimestamp"' in head
        # No other object with this UID is named in the metadata.
        or (uid and f'"uid":"{uid}"'.encode() not in head)
    ):
        return None
    # Split at its resourceVersion, unless the text occurs in another member, too.
    parts = head.split(b'"resourceVersion":"%d"' % stored.revision)
    if len(parts) != 2:
        return None
    if patch.status is UNSET:
        return _remove_finalizer(parts, rest, tail, patch.metadata.removed_finalizers)
    if patch.metadata.removed_finalizers or b'"managedFields"' in head:
        # Another manager may own a part of the status.
        return None
    old = _read_status(value[status_at:-1])
    status_shape = shape.fields["status"]
    assert isinstance(status_shape, ObjectShape), "a status is an object"
    new = _merged(old, patch.status, status_shape)
    if new == old:
        return stored
    if "qosClass" not in new:
        return None
    if "containerStatuses" in old or "initContainerStatuses" in old:
        spec = decode(value[spec_at : status_at - _STATUS])
        if validate_pod_status_change({"status": new}, {"status": old, "spec": spec}):
            return None
    phase, status = new.get("phase"), _encode(new)
    return SectionWrite(
        parts[0],
        parts[1] + rest[:status_at] + status + b"}",
        cold=phase in _FINAL and b'"finalizers"' not in head,
        quiet=phase == "Running" != old.get("phase"),
        tail=(tail[0], len(status)),
    )


def _remove_finalizer(
    parts: list[bytes], rest: bytes, tail: tuple[int, int], removed: tuple[str, ...]
) -> SectionWrite | None:
    """Return the write without the finalizer; None if it is not the only one.

    `parts` are those of the metadata, `rest` is the remaining document.
    """
    for name, (number, part) in product(removed, enumerate(parts)):
        halves = part.split(f'"finalizers":["{name}"]'.encode())
        if len(halves) == 2:
            left, right = halves
            # One of the commas around the member goes, too.
            if right[:1] == b",":
                right = right[1:]
            elif left[-1:] == b",":
                left = left[:-1]
            parts[number] = left + right
            status = rest[-tail[1] - 1 :]
            ended = b'"phase":"Succeeded"' in status or b'"phase":"Failed"' in status
            return SectionWrite(parts[0], parts[1] + rest, cold=ended, tail=tail, finalizers=())
    return None


def _tail_of(document: bytes) -> tuple[int, int] | None:
    """Return the lengths of spec and status, with which the document ends; else None."""
    try:
        sections = _read_sections(document)
    except msgspec.ValidationError:
        # An earlier version stored other members.
        return None
    spec, status = bytes(sections.spec), bytes(sections.status)
    if not document.endswith(b',"spec":%b,"status":%b}' % (spec, status)):
        return None
    return len(spec), len(status)


def _merged(old: dict[str, Any], wanted: dict[str, Any], shape: ObjectShape) -> dict[str, Any]:
    """Return the result of a strategic merge, which replaces most fields of a status."""
    new = old | wanted
    for name in wanted.keys() - shape.replaced:
        if name == "conditions":
            new[name] = _merge_conditions(old.get(name, []), wanted[name])
        elif name in old and old[name] != wanted[name]:
            new[name] = strategic_merge(old, {name: wanted[name]}, shape)[name]
    return new


def _merge_conditions(old: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> list[Any]:
    """Merge conditions by type, in the order of a strategic merge."""
    named = {condition["type"] for condition in wanted}
    rest = [condition for condition in old if condition["type"] not in named]
    if len(rest) == len(old):
        return [*wanted, *rest]
    place = {condition["type"]: number for number, condition in enumerate(old)}
    if not rest:
        return [
            old[place[condition["type"]]] | condition if condition["type"] in place else condition
            for condition in wanted
        ]
    merged: list[Any] = []
    for condition in wanted:
        at = place.get(condition["type"], -1)
        while rest and place[rest[0]["type"]] < at:
            merged.append(rest.pop(0))
        merged.append(condition if at < 0 else old[at] | condition)
    return merged + rest
