"""What a DELETE does to one object: vanish, or stay with a deletionTimestamp; pure."""

from datetime import UTC, datetime, timedelta
from typing import Literal

from msgspec import Struct

from onejob.api.sections import Raw, held
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
    """Nothing holds the object back."""


class Stay(Struct, frozen=True):
    """The object stays, marked as being deleted, until finalizers and grace are over.
    The document is the stored one itself when nothing changes."""

    document: Document


def check_deletable(target: Target) -> None:
    """Some namespaces must exist for everything else to work."""
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
    # A Pod may have been given more seconds than the calendar has left. Both numbers are cut, since
    # one minus the other tells when the deletion was asked for.
    longest = int((_LAST_MOMENT - now).total_seconds())
    grace = min(strategy.deletion_grace_seconds(doc, options.grace_seconds), longest)
    deleting_since = metadata.get("deletionTimestamp")
    if deleting_since is not None:
        # A repeated delete may only shorten the grace that the first one set.
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
    """Whether an update removed the last thing that kept a deleted object alive."""
    metadata = doc["metadata"]
    return (
        "deletionTimestamp" in metadata
        and not metadata.get("finalizers")
        and not metadata.get("deletionGracePeriodSeconds")
        and not _held_by_spec(doc)
    )


def _held_by_spec(doc: Document) -> bool:
    """Namespaces alone have finalizers in their spec: they stay until they are empty."""
    spec = held(doc, "spec")
    if type(spec) is Raw and b'"finalizers"' not in bytes(spec):
        return False
    return bool(doc.get("spec", {}).get("finalizers"))


def resolve_propagation(
    finalizers: list[str], strategy: Strategy, options: DeleteOptions
) -> Literal["Background", "Foreground", "Orphan"]:
    """What was asked for, else what an earlier delete asked for, else the kind's default."""
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
