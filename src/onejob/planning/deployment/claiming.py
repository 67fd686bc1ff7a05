"""Ownership by selector: keep, adopt or release the objects that an owner may control."""

from collections.abc import Iterable
from typing import Any, Generic, Protocol, TypeVar

import msgspec
from msgspec import Struct

from onejob.objects.deployment import API_VERSION
from onejob.objects.meta import LabelSelector, Meta
from onejob.wire.selectors import matcher_of


class Owned(Protocol):
    @property
    def metadata(self) -> Meta: ...


T = TypeVar("T", bound=Owned)


class Claims(Struct, Generic[T], frozen=True):
    """Objects that an owner keeps, adopts and releases.

    Adoption requires a live read of the owner first: its UID must be unchanged, and it must not be
    in deletion.
    """

    kept: tuple[T, ...] = ()
    adoptions: tuple[T, ...] = ()
    releases: tuple[T, ...] = ()


def plan_claims(owner: Meta, selector: LabelSelector, candidates: Iterable[T]) -> Claims[T]:
    """Sort `candidates`, objects of the owner's namespace, by what happens to them."""
    matcher = matcher_of(selector)
    kept: list[T] = []
    adoptions: list[T] = []
    releases: list[T] = []
    for candidate in candidates:
        metadata = candidate.metadata
        controller = metadata.controller_ref
        matches = matcher.matches(metadata.labels)
        if controller is None:
            if matches and not owner.deleting and not metadata.deleting:
                adoptions.append(candidate)
        elif controller.uid == owner.uid:
            if matches:
                kept.append(candidate)
            elif not owner.deleting:
                releases.append(candidate)
    return Claims(tuple(kept), tuple(adoptions), tuple(releases))


def owner_reference(kind: str, owner: Meta) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": kind,
        "name": owner.name,
        "uid": owner.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def adoption_patch(kind: str, owner: Meta, adopted: Meta) -> bytes:
    """Return a strategic merge patch. It fails if the object was replaced meanwhile."""
    references = [owner_reference(kind, owner)]
    return msgspec.json.encode({"metadata": {"uid": adopted.uid, "ownerReferences": references}})


def release_patch(owner: Meta, released: Meta) -> bytes:
    """Return a strategic merge patch that removes the owner's reference."""
    references = [{"$patch": "delete", "uid": owner.uid}]
    return msgspec.json.encode({"metadata": {"uid": released.uid, "ownerReferences": references}})
