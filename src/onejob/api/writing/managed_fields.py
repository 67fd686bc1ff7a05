"""Field ownership: `metadata.managedFields` and its update by creates, updates and patches.

Server-side apply builds on this in `onejob.api.writing.apply`.
"""

from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from onejob.api.schema.shapes import ObjectShape
from onejob.api.strategy import Document
from onejob.api.writing.field_sets import (
    FieldPath,
    FieldSet,
    FieldsV1,
    add_fields,
    check_encoding,
    compare,
    decode_fields,
    encode_all,
    encode_fields,
    remove_fields,
)
from onejob.api.writing.metadata import timestamp

#: Fields maintained by the server; they have no owner.
SERVER_FIELDS: Final[frozenset[FieldPath]] = frozenset(
    {
        (),
        ("f:apiVersion",),
        ("f:kind",),
        ("f:metadata",),
        *(
            ("f:metadata", f"f:{name}")
            for name in (
                "name", "namespace", "creationTimestamp", "selfLink", "uid", "generation",
                "managedFields", "resourceVersion",
            )
        ),
    }
)  # fmt: skip

#: Maximum number of Update entries; the oldest ones beyond it are merged into one.
MAX_UPDATE_ENTRIES: Final = 10
_ANCIENT: Final = "ancient-changes"

#: Fields that Go clients always write, even in an empty object; they never count as added.
_ALWAYS_WRITTEN: Final = frozenset(
    {"metadata", "spec", "status", "template", "jobTemplate", "containers"}
)


_CONTROLLERS: Final = "kube-controller-manager"
_NODE: Final = "kubelet"
#: Manager that writes the status, by API version and kind: onejob's own components under the names
#: of their Kubernetes counterparts.
STATUS_WRITERS: Final[Mapping[tuple[str, str], str]] = {
    ("batch/v1", "Job"): _CONTROLLERS,
    ("batch/v1", "CronJob"): _CONTROLLERS,
    ("policy/v1", "PodDisruptionBudget"): _CONTROLLERS,
    ("v1", "ResourceQuota"): _CONTROLLERS,
    ("v1", "Pod"): _NODE,
    ("v1", "Node"): _NODE,
}


class Entry(Struct, frozen=True):
    manager: str
    operation: str
    api_version: str
    subresource: str
    time: str
    #: Shared with documents; must not be modified in place.
    encoded: FieldsV1

    @property
    def fields(self) -> FieldSet:
        """Fields that the manager owns."""
        return decode_fields(self.encoded)

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """Return the key under which writes share an entry.

        The API version is part of it for Update only: an apply in another version belongs to the
        same entry.
        """
        version = "" if self.operation == "Apply" else self.api_version
        return (self.manager, self.operation, version, self.subresource)

    def document(self) -> Document:
        """Return the entry as in `metadata.managedFields`."""
        doc: Document = {
            "manager": self.manager,
            "operation": self.operation,
            "apiVersion": self.api_version,
        }
        if self.time:
            doc["time"] = self.time
        doc["fieldsType"] = "FieldsV1"
        doc["fieldsV1"] = self.encoded
        if self.subresource:
            doc["subresource"] = self.subresource
        return doc


def track_update(
    old: Document | None,
    new: Document,
    manager: str,
    now: datetime,
    subresource: str,
    type_: ObjectShape,
) -> None:
    """Update managedFields of `new` in place after a create (`old` is None) or an update.

    Changed fields become owned by `manager`; removed fields are removed from all entries. An update
    adds no entries to an object without managedFields, which is tracked from its first apply on.
    Exception: status writes are always tracked, to distinguish other writers of the status from
    onejob's own controllers.
    """
    if old is None:
        fields = all_fields(new, type_, subresource)
        write_entries(
            new, [Entry(manager, "Update", type_.api_version, "", timestamp(now), fields)]
        )
        return
    own = Entry(manager, "Update", type_.api_version, subresource, timestamp(now), {})
    entries = _starting_point(old, new, type_)
    if not entries and subresource != "status":
        write_entries(new, [])
        return
    before = skeleton(type_) | {**old, "metadata": _without_entries(old)}
    after = {**new, "metadata": _without_entries(new)}
    changes = compare(before, after, type_).without(reset_fields(type_, subresource))
    taken = (changes.added | changes.modified) - SERVER_FIELDS
    lost = taken | changes.removed
    entries = [replace(entry, encoded=remove_fields(entry.encoded, lost)) for entry in entries]
    write_entries(
        new, _merge_oldest_updates(_add_to_own_entry(entries, own, taken) if taken else entries)
    )


def all_fields(doc: Document, type_: ObjectShape, subresource: str) -> FieldsV1:
    """Return all fields of `doc` that can be owned through this endpoint."""
    ignored, ignored_metadata, known = _not_ownable(type_, subresource)
    ownable = {name: item for name, item in doc.items() if name not in ignored}
    ownable["metadata"] = {
        name: item for name, item in doc.get("metadata", {}).items() if name not in ignored_metadata
    }
    return encode_all(ownable, type_, known)


@lru_cache(maxsize=256)
def _not_ownable(
    type_: ObjectShape, subresource: str
) -> tuple[frozenset[str], frozenset[str], Document]:
    """Return the top-level and metadata fields without owner at this endpoint, and `skeleton`."""
    ignored = SERVER_FIELDS.union(reset_fields(type_, subresource))
    return (
        frozenset(path[0].removeprefix("f:") for path in ignored if len(path) == 1),
        frozenset(
            path[1].removeprefix("f:")
            for path in ignored
            if len(path) == 2 and path[0] == "f:metadata"
        ),
        skeleton(type_),
    )


def _add_to_own_entry(entries: list[Entry], own: Entry, taken: set[FieldPath]) -> list[Entry]:
    """Merge the taken fields into the entry with the identity of `own`, adding it if missing."""
    kept = [entry for entry in entries if entry.identity != own.identity]
    previous = next((e.encoded for e in entries if e.identity == own.identity), {})
    return [*kept, replace(own, encoded=add_fields(previous, taken))]


def _starting_point(old: Document, new: Document, type_: ObjectShape) -> list[Entry]:
    """Return the entries that an update starts from.

    Clients may edit managedFields, and reset them with one empty entry. Malformed managedFields are
    treated as not sent. Entries that are derived on reads (`is_derived`) are replaced by the
    stored ones.
    """
    if new.get("metadata", {}).get("managedFields") == [{}]:
        return []
    sent = read_entries(new)
    if any(is_derived(entry, type_) for entry in sent):
        stored = [entry for entry in read_entries(old) if is_derived(entry, type_)]
        sent = [*(entry for entry in sent if not is_derived(entry, type_)), *stored]
    return sent or read_entries(old)


def status_writer(type_: ObjectShape) -> str:
    """Return the name of the onejob component that writes the status; "" if there is none."""
    return STATUS_WRITERS.get((type_.api_version, type_.kind), "")


def is_derived(entry: Entry, type_: ObjectShape) -> bool:
    """Return whether the entry is one that reads derive from the status; see `status_entries`."""
    return (
        entry.subresource == "status"
        and entry.operation == "Update"
        and entry.manager == status_writer(type_)
    )


def read_entries(doc: Document) -> list[Entry]:
    """Return all entries of managedFields; an empty list if any of them is malformed."""
    try:
        return [_parse_entry(item) for item in doc.get("metadata", {}).get("managedFields") or ()]
    except (ValueError, TypeError, AttributeError):
        return []


def _parse_entry(item: Any) -> Entry:
    """Return the entry of a document. Raises ValueError and errors of malformed values."""
    if item.get("operation") not in ("Apply", "Update"):
        raise ValueError("neither Apply nor Update")
    encoded = item.get("fieldsV1") or {}
    check_encoding(encoded)
    return Entry(
        item.get("manager", ""),
        item["operation"],
        item.get("apiVersion", ""),
        item.get("subresource", ""),
        item.get("time", ""),
        encoded,
    )


def write_entries(doc: Document, entries: list[Entry]) -> None:
    """Write the entries to managedFields of `doc`, in upstream's order, omitting empty ones."""
    documents = [
        entry.document()
        for entry in sorted(entries, key=lambda e: (e.operation, e.time, *e.identity))
        if entry.encoded
    ]
    if documents:
        doc["metadata"]["managedFields"] = documents
    else:
        doc["metadata"].pop("managedFields", None)


def _merge_oldest_updates(entries: list[Entry]) -> list[Entry]:
    """Limit the number of Update entries by merging the oldest ones."""
    updates = sorted(
        (entry for entry in entries if entry.operation == "Update" and entry.encoded),
        key=lambda entry: entry.time,
    )
    surplus = len(updates) - MAX_UPDATE_ENTRIES
    if surplus <= 0:
        return entries
    # One more, because the merged entry counts too.
    folded = updates[: surplus + 1]
    ancient = replace(
        folded[-1],
        manager=_ANCIENT,
        subresource="",
        encoded=encode_fields({path for entry in folded for path in entry.fields}),
    )
    # By identity: pairwise comparison takes minutes if a client sends thousands of entries.
    gone = {id(entry) for entry in folded}
    return [*(entry for entry in entries if id(entry) not in gone), ancient]


def reset_fields(type_: ObjectShape, subresource: str) -> tuple[FieldPath, ...]:
    """Return the fields that writes to this endpoint cannot change and therefore cannot own."""
    if subresource == "":
        return (("f:status",),) if "status" in type_.fields else ()
    if subresource == "status":
        if type_.kind == "Pod":
            return (
                ("f:spec",),
                ("f:metadata", "f:deletionTimestamp"),
                ("f:metadata", "f:ownerReferences"),
            )
        return (("f:spec",),)
    return ()


def skeleton(type_: ObjectShape) -> Document:
    """Return the document that upstream compares a new object with.

    It is empty except for the fields that Go clients always write. Without these, a creator would
    own `spec` itself in addition to the fields inside it.
    """
    return {
        name: skeleton(shape) if isinstance(shape, ObjectShape) else []
        for name, shape in type_.fields.items()
        if name in _ALWAYS_WRITTEN and (type_.go_written or name == "metadata")
    }


def _without_entries(doc: Document) -> Document:
    return {
        name: value for name, value in doc.get("metadata", {}).items() if name != "managedFields"
    }
