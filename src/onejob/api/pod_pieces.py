"""A stored Pod, cut into pieces where writes change it.

Most of a Pod never changes after its creation. To write its next version, the pieces that
change are replaced and all are joined; the rest is copied without being looked at.
"""

from typing import Final

import msgspec
from msgspec.structs import replace

_encode = msgspec.json.encode


class PodPieces(msgspec.Struct, frozen=True, gc=False):
    """Joined, the pieces are the document byte for byte. The facts are those writes ask for."""

    uid: str
    deleting: bool
    finalizers: tuple[str, ...]
    #: Whether nothing in the spec speaks against giving the Pod a node.
    placeable: bool
    ended: bool
    #: Up to the digits of the revision, and from there to the end of the metadata.
    before_revision: bytes
    after_revision: bytes
    spec: bytes
    status: bytes

    def document(self, revision: int) -> bytes:
        return b'%b%d%b,"spec":%b,"status":%b}' % (
            self.before_revision,
            revision,
            self.after_revision,
            self.spec,
            self.status,
        )

    def with_status(self, status: dict[str, msgspec.Raw]) -> "PodPieces":
        return replace(self, status=_encode(status), ended=has_ended(status))

    def bound(self, node: str, now: str) -> "PodPieces | None":
        """The Pod as it is once it has a node; None where it takes more than adding that."""
        if not self.placeable or self.deleting or b'"conditions":' in self.status:
            return None
        condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": now}
        return replace(
            self,
            placeable=False,
            spec=_with_member(self.spec, b'"nodeName":' + _encode(node)),
            status=_with_member(self.status, b'"conditions":[' + _encode(condition) + b"]"),
        )

    def freed(self, names: list[str]) -> "PodPieces | None":
        """The Pod without finalizers of these names; None if it takes more than cutting them
        out. The Pod itself if it has none of them."""
        kept = tuple(name for name in self.finalizers if name not in names)
        if kept == self.finalizers:
            return self
        before = self.before_revision
        member = _finalizers_member(self.finalizers)
        # One that is being deleted may vanish with its last finalizer.
        if self.deleting or before.count(member) != 1:
            return None
        left = _finalizers_member(kept) if kept else b""
        return replace(self, finalizers=kept, before_revision=before.replace(member, left))


def cut(document: bytes, revision: int) -> PodPieces | None:
    """None for a Pod whose document has another order, or says twice what is its revision."""
    pod = _read_outline(document)
    metadata = _read_metadata(pod.metadata)
    before, mark, after = bytes(pod.metadata).partition(b'"resourceVersion":"%d"' % revision)
    if not mark or mark in after:
        return None
    status = bytes(pod.status)
    pieces = PodPieces(
        metadata.uid,
        metadata.deletion_timestamp is not None,
        metadata.finalizers,
        is_placeable(pod.spec),
        has_ended(read_members(status)),
        BEFORE_METADATA + before + BEFORE_REVISION,
        b'"' + after,
        bytes(pod.spec),
        status,
    )
    return pieces if pieces.document(revision) == document else None


#: How the document of every stored Pod begins.
BEFORE_METADATA: Final = b'{"apiVersion":"v1","kind":"Pod","metadata":'
BEFORE_REVISION: Final = b'"resourceVersion":"'


def has_ended(status: dict[str, msgspec.Raw]) -> bool:
    return bytes(status.get("phase", b"")) in (b'"Succeeded"', b'"Failed"')


def is_placeable(spec: bytes | msgspec.Raw) -> bool:
    placement = _read_placement(spec)
    return not placement.node_name and not placement.scheduling_gates


def _with_member(members: bytes, member: bytes) -> bytes:
    """An encoded object with one more member at its end."""
    return members[:-1] + (b"," if len(members) > 2 else b"") + member + b"}"


def _finalizers_member(names: tuple[str, ...]) -> bytes:
    # There is always a member behind it: the revision.
    return b'"finalizers":' + _encode(names) + b","


class _Outline(msgspec.Struct):
    metadata: msgspec.Raw
    spec: msgspec.Raw
    status: msgspec.Raw = msgspec.Raw(b"{}")


class _Metadata(msgspec.Struct, rename="camel"):
    uid: str
    finalizers: tuple[str, ...] = ()
    deletion_timestamp: str | None = None


class _Placement(msgspec.Struct, rename="camel"):
    node_name: str = ""
    scheduling_gates: list[msgspec.Raw] = []


_read_outline = msgspec.json.Decoder(_Outline).decode
_read_metadata = msgspec.json.Decoder(_Metadata).decode
_read_placement = msgspec.json.Decoder(_Placement).decode
read_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
