"""A stored Pod in pieces, and what becomes of them when it is bound, reported on and freed."""

import msgspec
from msgspec.structs import replace

from onejob.api.writing.pieces import Pieces, cut
from onejob.api.writing.placing import scheduled_condition

_encode = msgspec.json.encode


class PodPieces(Pieces, frozen=True, gc=False):
    """The facts are those that writes ask for."""

    uid: str
    deleting: bool
    finalizers: tuple[str, ...]
    #: Whether nothing in the spec speaks against giving the Pod a node.
    placeable: bool
    #: As it is encoded.
    phase: bytes
    generation: int

    @property
    def ended(self) -> bool:
        return self.phase in (b'"Succeeded"', b'"Failed"')

    @property
    def running(self) -> bool:
        return self.phase == b'"Running"'

    def with_status(self, status: dict[str, msgspec.Raw]) -> "PodPieces":
        return replace(self, status=_encode(status), phase=phase_of(status))

    def bound(self, node: str, now: str) -> "PodPieces | None":
        """The Pod as it is once it has a node; None where it takes more than adding that."""
        if not self.placeable or self.deleting or b'"conditions":' in self.status:
            return None
        condition = scheduled_condition(self.generation, now)
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


def cut_pod(document: bytes, revision: int) -> PodPieces | None:
    """None for a Pod that cannot be cut."""
    found = cut(document, revision)
    if found is None:
        return None
    pieces, metadata = found.pieces, _read_metadata(found.metadata)
    return PodPieces(
        pieces.before_revision,
        pieces.after_revision,
        pieces.spec,
        pieces.status,
        metadata.uid,
        metadata.deletion_timestamp is not None,
        metadata.finalizers,
        is_placeable(pieces.spec),
        phase_of(read_members(pieces.status)),
        metadata.generation,
    )


def phase_of(status: dict[str, msgspec.Raw]) -> bytes:
    return bytes(status.get("phase", b""))


def is_placeable(spec: bytes) -> bool:
    placement = _read_placement(spec)
    return placement.node_name is None and not placement.scheduling_gates


def _with_member(members: bytes, member: bytes) -> bytes:
    """An encoded object with one more member at its end."""
    return members[:-1] + (b"," if len(members) > 2 else b"") + member + b"}"


def _finalizers_member(names: tuple[str, ...]) -> bytes:
    # There is always a member behind it: the revision.
    return b'"finalizers":' + _encode(names) + b","


class _Metadata(msgspec.Struct, rename="camel"):
    uid: str
    finalizers: tuple[str, ...] = ()
    deletion_timestamp: str | None = None
    generation: int = 0


class _Placement(msgspec.Struct, rename="camel"):
    node_name: str | None = None
    scheduling_gates: list[msgspec.Raw] = []


_read_metadata = msgspec.json.Decoder(_Metadata).decode
_read_placement = msgspec.json.Decoder(_Placement).decode
read_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
