"""Patches of one section of a Pod by onejob's own writers, without decoding the rest.

A Pod gets two of these: its node writes the status, and its Job removes the finalizer. Both change
one section, and in most cases no rule depends on any other; then the rest of the document goes back
into the store byte for byte. `Writes.patch` handles all other cases and is the reference for these.
"""

from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from onejob.api.documents import decode
from onejob.api.kinds.pod.update import validate_pod_status_change
from onejob.api.schema.shapes import ObjectShape
from onejob.api.writing.strategic_merge import strategic_merge
from onejob.store.base import Stored

_encode = msgspec.json.encode


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
    cold: bool
    #: Whether no controller has to react.
    quiet: bool = False

    def at(self, revision: int) -> bytes:
        """Return the document as written at this revision."""
        return b'%b"resourceVersion":"%d"%b' % (self.before, revision, self.after)


class _WithMetadata(Struct, forbid_unknown_fields=True):
    """A Pod of which only the metadata is decoded. Members are encoded in this order."""

    api_version: str = field(name="apiVersion")
    kind: str
    metadata: dict[str, Any]
    spec: Raw
    status: Raw


class _WithStatus(Struct, forbid_unknown_fields=True):
    """A Pod of which only the status is decoded. Members are encoded in this order."""

    api_version: str = field(name="apiVersion")
    kind: str
    metadata: Raw
    spec: Raw
    status: dict[str, Any]


_read = msgspec.json.Decoder(SectionPatch).decode
_read_with_metadata = msgspec.json.Decoder(_WithMetadata).decode
_read_with_status = msgspec.json.Decoder(_WithStatus).decode
_FINAL: Final = ("Succeeded", "Failed")


def read_section_patch(body: bytes) -> SectionPatch | None:
    """Return the patch, or None if it changes anything else or has further directives."""
    try:
        patch = _read(body)
    except msgspec.ValidationError:
        return None
    if patch.status is not UNSET and (b'"$' in body or b"null" in body):
        return None
    return patch


def has_status(patch: SectionPatch | None) -> bool:
    return patch is not None and patch.status is not UNSET


def patch_section(
    stored: Stored, patch: SectionPatch, shape: ObjectShape
) -> SectionWrite | Stored | None:
    """Return the write for a patch; `stored` itself if the patch changes nothing.

    None if rules other than those of this module apply. `shape` is that of a Pod.
    """
    try:
        if patch.status is UNSET:
            return _remove_finalizers(stored, patch.metadata)
        return _set_status(stored, patch.metadata, patch.status, shape)
    except msgspec.ValidationError:
        # A Pod with other members; an earlier version stored them.
        return None


def _remove_finalizers(stored: Stored, patch: _PatchedMetadata) -> SectionWrite | Stored | None:
    """Return the write without the finalizers, the stored version if nothing changes, or None if
    the whole Pod has to be decoded."""
    pod = _read_with_metadata(stored.value)
    metadata = pod.metadata
    if "deletionTimestamp" in metadata or (patch.uid and patch.uid != metadata["uid"]):
        return None
    finalizers = metadata.get("finalizers", ())
    kept = [name for name in finalizers if name not in patch.removed_finalizers]
    if len(kept) == len(finalizers):
        return stored
    if kept:
        metadata["finalizers"] = kept
    else:
        del metadata["finalizers"]
    status = bytes(pod.status)
    ended = b'"phase":"Succeeded"' in status or b'"phase":"Failed"' in status
    return _write(stored, pod, cold=ended and not kept)


def _set_status(
    stored: Stored, patch: _PatchedMetadata, wanted: dict[str, Any], shape: ObjectShape
) -> SectionWrite | Stored | None:
    """Return the write with the status, the stored version if nothing changes, or None if the whole
    Pod has to be decoded."""
    pod = _read_with_status(stored.value)
    metadata, old = bytes(pod.metadata), pod.status
    if (
        patch.removed_finalizers
        or b'"deletionTimestamp"' in metadata
        # Another manager may own a part of the status.
        or b'"managedFields"' in metadata
        # No other object with this UID is named in the metadata.
        or (patch.uid and b'"uid":"%b"' % patch.uid.encode() not in metadata)
    ):
        return None
    status_shape = shape.fields["status"]
    assert isinstance(status_shape, ObjectShape), "a status is an object"
    new = _merged(old, wanted, status_shape)
    if new == old:
        return stored
    if "qosClass" not in new:
        return None
    if "containerStatuses" in old or "initContainerStatuses" in old:
        before = {"status": old, "spec": decode(pod.spec)}
        if validate_pod_status_change({"status": new}, before):
            return None
    pod.status = new
    phase = new.get("phase")
    return _write(
        stored,
        pod,
        cold=phase in _FINAL and b'"finalizers"' not in metadata,
        quiet=phase == "Running" != old.get("phase"),
    )


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
    place = {condition["type"]: number for number, condition in enumerate(old)}
    named = {condition["type"] for condition in wanted}
    rest = [condition for condition in old if condition["type"] not in named]
    merged: list[Any] = []
    for condition in wanted:
        at = place.get(condition["type"], -1)
        while rest and place[rest[0]["type"]] < at:
            merged.append(rest.pop(0))
        merged.append(condition if at < 0 else old[at] | condition)
    return merged + rest


def _write(
    stored: Stored, pod: _WithMetadata | _WithStatus, *, cold: bool, quiet: bool = False
) -> SectionWrite | None:
    """Return the encoded Pod, split at its resourceVersion; None if that text is not unique."""
    parts = _encode(pod).split(b'"resourceVersion":"%d"' % stored.revision)
    if len(parts) != 2:
        # The text occurs elsewhere too, e.g. in an embedded object.
        return None
    return SectionWrite(parts[0], parts[1], cold, quiet)
