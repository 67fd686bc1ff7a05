"""Object metadata rules common to all kinds: server-owned fields, names, UIDs, preconditions."""

from collections.abc import Collection, Set
from datetime import datetime
from random import Random
from typing import Any

from onejob.api.strategy import Document
from onejob.wire.errors import BadRequest, Conflict, InternalError, Invalid, conflict
from onejob.wire.field_errors import FieldError, forbidden, invalid
from onejob.wire.kinds import Kind

#: Without vowels and look-alike characters, so that suffixes neither form words nor get misread.
_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
#: A suffix has five letters: two pairs and a single one, all from one random number.
_SUFFIX_PAIRS = [a + b for a in _SUFFIX_LETTERS for b in _SUFFIX_LETTERS]
_PAIRS = len(_SUFFIX_PAIRS)
_MAX_GENERATED_PREFIX_LENGTH = 58

#: Metadata fields that an update copies from the stored object.
_OWNED_BY_SERVER = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
)

_NOT_FOR_CLIENTS = ("resourceVersion", "selfLink", *_OWNED_BY_SERVER)

#: Metadata fields that clients may change freely; changes to all others are checked.
FREE_FIELDS = frozenset(("labels", "annotations", "finalizers", "ownerReferences"))

#: Mask of the random bits of a UUID: six of the 128 encode version and variant.
_RANDOM_BITS = (1 << 128) - 1 & ~(0xF000 << 64 | 0xC000 << 48)
_VERSION_4 = 0x4000 << 64 | 0x8000 << 48

_OMITTED_WHEN_EMPTY = (
    "generateName",
    "labels",
    "annotations",
    "finalizers",
    "ownerReferences",
    "managedFields",
)


def timestamp(at: datetime) -> str:
    """Return a UTC time in RFC 3339 format, in whole seconds."""
    # `at` is in UTC; formatting with strftime takes five times as long.
    return at.isoformat()[:19] + "Z"


def new_uid(rng: Random) -> str:
    # Equal to `UUID(int=…, version=4)` in a third of the time: one is generated per create.
    text = f"{rng.getrandbits(128) & _RANDOM_BITS | _VERSION_4:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def generated_name(prefix: str, rng: Random) -> str:
    return with_suffix(prefix, rng.getrandbits(64))


def with_suffix(prefix: str, drawn: int) -> str:
    return (
        prefix[:_MAX_GENERATED_PREFIX_LENGTH]
        + _SUFFIX_PAIRS[drawn % _PAIRS]
        + _SUFFIX_PAIRS[drawn // _PAIRS % _PAIRS]
        + _SUFFIX_LETTERS[drawn // _PAIRS**2 % len(_SUFFIX_LETTERS)]
    )


def check_type(kind: Kind, body: Document) -> None:
    """Raise BadRequest or Invalid if apiVersion or kind of the body contradict the URL.

    Both may be omitted, except in custom resources.
    """
    if kind.custom:
        for field, shown in (("kind", "Kind"), ("apiVersion", "apiVersion")):
            if not body.get(field):
                raise BadRequest(
                    f"the object provided is unrecognized (must be of type {kind.kind}): "
                    f"Object '{shown}' is missing"
                )
    api_version, name = body.get("apiVersion", kind.api_version), body.get("kind", kind.kind)
    if api_version != kind.api_version:
        raise BadRequest(
            f"the API version in the data ({api_version}) does not match the expected "
            f"API version ({kind.api_version})"
        )
    if name != kind.kind and kind.custom:
        why = invalid("kind", name, f"must be {kind.kind}")
        raise Invalid(str(name), kind.group, metadata_of(body).get("name", ""), [why])
    if name != kind.kind:
        raise BadRequest(
            f"{name} in version {kind.version!r} cannot be handled as a {kind.kind}: "
            f"expected kind {kind.kind}".replace("'", '"')
        )


def metadata_of(body: Document) -> dict[str, Any]:
    """Return the body's metadata, added if it is absent. Raises BadRequest."""
    metadata = body.setdefault("metadata", {})
    if not isinstance(metadata, dict):
        raise BadRequest("metadata must be an object")
    return metadata


def ordered(kind: Kind, doc: Document) -> Document:
    """Return the document with apiVersion, kind and metadata first, which lists rely on."""
    first = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": doc.get("metadata", {}),
    }
    return first | {name: value for name, value in doc.items() if name not in first}


def prepare_created(
    kind: Kind, namespace: str, doc: Document, now: datetime, rng: Random, *, dry_run: bool
) -> None:
    """Check and complete the metadata of a new object in place; its name may be generated later."""
    metadata = metadata_of(doc)
    check_namespace(kind, namespace, metadata)
    if metadata.get("resourceVersion") and not dry_run:
        raise InternalError("resourceVersion should not be set on objects to be created")
    for owned in _NOT_FOR_CLIENTS:
        metadata.pop(owned, None)
    drop_empty(metadata)
    if kind.namespaced:
        metadata["namespace"] = namespace
    # The server maintains managedFields from here on.
    metadata.pop("managedFields", None)
    metadata["uid"] = new_uid(rng)
    metadata["creationTimestamp"] = timestamp(now)


def drop_empty(metadata: dict[str, Any]) -> None:
    """Remove empty lists, maps and strings from metadata, as upstream omits them."""
    for field in _OMITTED_WHEN_EMPTY:
        if field in metadata and not metadata[field]:
            del metadata[field]


def check_namespace(kind: Kind, namespace: str, metadata: dict[str, Any]) -> None:
    """Remove the namespace of a cluster-scoped object. Raises BadRequest if it differs from the
    request's."""
    given = metadata.get("namespace", "")
    if given and given != namespace:
        raise BadRequest(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    if not kind.namespaced:
        metadata.pop("namespace", None)


def carry_over(
    kind: Kind,
    metadata: Document,
    stored: Document,
    namespace: str,
    name: str,
    *,
    patching: bool,
) -> None:
    """Check the identity of an updated object, and copy server-owned fields from `stored`.

    Raises BadRequest for another name or namespace; Conflict, or Invalid for patches, for another
    UID.
    """
    check_namespace(kind, namespace, metadata)
    given_name = metadata.get("name", "")
    if given_name != name:
        if patching or given_name:
            raise wrong_name(given_name, name)
        raise BadRequest("name must be provided")
    given_uid = metadata.get("uid", "")
    if given_uid and given_uid != stored["uid"]:
        if patching:
            raise Invalid(
                kind.kind,
                kind.group,
                name,
                [invalid("metadata.uid", given_uid, "field is immutable")],
            )
        raise uid_mismatch(kind, name, given_uid, stored["uid"])
    if kind.namespaced:
        metadata["namespace"] = namespace
    if "selfLink" in metadata:
        del metadata["selfLink"]
    drop_empty(metadata)
    for owned in _OWNED_BY_SERVER:
        if owned in stored:
            metadata[owned] = stored[owned]
        elif owned in metadata:
            del metadata[owned]


def changed_members(new: Document, stored: Document) -> Set[str]:
    """Return the names of members that were replaced, removed or added.

    Objects and lists are compared by identity: unchanged ones are shared.
    """
    changed = {
        name
        for name, value in new.items()
        if (before := stored.get(name)) is not value
        and (value.__class__ is dict or value.__class__ is list or before != value)
    }
    return changed | (stored.keys() - new.keys())


def settle_free_fields(
    metadata: Document, stored: Document, changed: Collection[str]
) -> list[FieldError]:
    """Drop empty fields and check finalizers, for an update that changes only `FREE_FIELDS`."""
    for field in changed:
        if field in metadata and not metadata[field]:
            del metadata[field]
    return new_finalizers(metadata, stored) if "finalizers" in changed else []


def wrong_name(given: str, name: str) -> BadRequest:
    return BadRequest(
        f"the name of the object ({given}) does not match the name on the URL ({name})"
    )


def uid_mismatch(kind: Kind, name: str, asked: str, found: str) -> Conflict:
    return precondition_failed(
        kind,
        name,
        f"the UID in the precondition ({asked}) does not match the UID in record ({found}). "
        "The object might have been deleted and then recreated",
    )


def revision_mismatch(kind: Kind, name: str, asked: str, found: str) -> Conflict:
    return precondition_failed(
        kind,
        name,
        f"the ResourceVersion in the precondition ({asked}) does not match the ResourceVersion "
        f"in record ({found}). The object might have been modified",
    )


def precondition_failed(kind: Kind, name: str, why: str) -> Conflict:
    """Return the 409 for a failed precondition.

    Only in this error, upstream names the Kind instead of the resource.
    """
    qualified = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    return conflict(qualified, name, why)


def new_finalizers(metadata: Document, stored: Document) -> list[FieldError]:
    """Return an error for finalizers added to an object that is being deleted.

    Finalizers of such an object may only be removed.
    """
    if "deletionTimestamp" not in stored:
        return []
    known = set(stored.get("finalizers", ()))
    added = [name for name in metadata.get("finalizers", ()) if name not in known]
    if not added:
        return []
    listed = " ".join(f'"{name}"' for name in added).replace('" "', '", "')
    return [
        forbidden(
            "metadata.finalizers",
            "no new finalizers can be added if the object is being deleted, "
            f"found new finalizers []string{{{listed}}}",
        )
    ]
