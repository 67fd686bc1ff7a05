"""Deletion of one object: finalizers, grace period and propagation policy.

Pure: decides whether the object is removed at once or stays with a deletionTimestamp.
"""

from datetime import UTC, datetime, timedelta
from typing import Literal

from msgspec import Struct

from onejob.api.strategy import Document, Strategy
from onejob.api.writing.metadata import revision_mismatch, timestamp, uid_mismatch
from onejob.objects.meta import NAMESPACES
from onejob.wire.errors import Forbidden
from onejob.wire.kinds import Kind
from onejob.wire.requests import DeleteOptions, Target

_IMMORTAL_NAMESPACES = frozenset(("default", "kube-system", "kube-public"))

_LAST_MOMENT = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"


class Vanish(Struct, frozen=True):
    """The object is removed at once: it has neither finalizers nor a grace period."""


class Stay(Struct, frozen=True):
    """The object stays, with a deletionTimestamp, until its finalizers and grace period are gone.

    The document is the stored one itself if nothing changes.
    """

    document: Document


def check_deletable(target: Target) -> None:
    """Raise Forbidden for `default` and other namespaces that the API requires."""
    if target.kind.storage == NAMESPACES and target.name in _IMMORTAL_NAMESPACES:
        raise Forbidden(
            f'namespaces "{target.name}" is forbidden: this namespace may not be deleted',
            details={"name": target.name, "kind": target.kind.plural},
        )


def check_preconditions(kind: Kind, doc: Document, options: DeleteOptions) -> None:
    metadata = doc["metadata"]
    if options.uid and options.uid != metadata["uid"]:
        raise uid_mismatch(kind, metadata["name"], options.uid, metadata["uid"])
    if options.resource_version and options.resource_version != metadata["resourceVersion"]:
        raise revision_mismatch(
            kind, metadata["name"], options.resource_version, metadata["resourceVersion"]
        )


def decide_deletion(
    doc: Document, strategy: Strategy, options: DeleteOptions, now: datetime
) -> Vanish | Stay:
    metadata = doc["metadata"]
    finalizers = _finalizers_after(metadata.get("finalizers", []), strategy, options)
    # A Pod's grace period may exceed the range of `datetime`. Both deletionTimestamp and grace
    # period are capped, since their difference is the time of the delete request.
    longest = int((_LAST_MOMENT - now).total_seconds())
    grace = min(strategy.deletion_grace_seconds(doc, options.grace_seconds), longest)
    deleting_since = metadata.get("deletionTimestamp")
    if deleting_since is not None:
        # A repeated delete may only shorten the grace period of the first one.
        grace = min(grace, metadata.get("deletionGracePeriodSeconds", 0))
    if not finalizers and grace == 0 and not _held_by_spec(doc):
        return Vanish()
    new_metadata = dict(metadata)
    if finalizers:
        new_metadata["finalizers"] = finalizers
    else:
        new_metadata.pop("finalizers", None)
    if deleting_since is None:
        new_metadata["deletionTimestamp"] = timestamp(now + timedelta(seconds=grace))
        if not _held_by_spec(doc):
            new_metadata["deletionGracePeriodSeconds"] = grace
        if "generation" in metadata:
            new_metadata["generation"] = metadata["generation"] + 1
    elif grace < metadata.get("deletionGracePeriodSeconds", 0):
        new_metadata["deletionTimestamp"] = timestamp(now + timedelta(seconds=grace))
        new_metadata["deletionGracePeriodSeconds"] = grace
    if new_metadata == metadata:
        return Stay(doc)
    return Stay({**doc, "metadata": new_metadata})


def gone_after_update(doc: Document) -> bool:
    """Return whether a deleted object has no finalizers and no grace period left."""
    metadata = doc["metadata"]
    return (
        "deletionTimestamp" in metadata
        and not metadata.get("finalizers")
        and not metadata.get("deletionGracePeriodSeconds")
        and not _held_by_spec(doc)
    )


def _held_by_spec(doc: Document) -> bool:
    """Return whether the spec has finalizers.

    Only Namespaces have them: they stay until they are empty.
    """
    return bool(doc.get("spec", {}).get("finalizers"))


def resolve_propagation(
    finalizers: list[str], strategy: Strategy, options: DeleteOptions
) -> Literal["Background", "Foreground", "Orphan"]:
    """Return the requested policy, else that of an earlier delete, else the kind's default."""
    match options.propagation:
        case "Background" | "Foreground" | "Orphan" as asked:
            return asked
        case _:
            if ORPHAN in finalizers:
                return "Orphan"
            if FOREGROUND in finalizers:
                return "Foreground"
            return strategy.default_propagation


def _finalizers_after(
    finalizers: list[str], strategy: Strategy, options: DeleteOptions
) -> list[str]:
    policy = resolve_propagation(finalizers, strategy, options)
    kept = [name for name in finalizers if name not in (FOREGROUND, ORPHAN)]
    if policy == "Foreground":
        return [*kept, FOREGROUND]
    if policy == "Orphan":
        return [*kept, ORPHAN]
    return kept
