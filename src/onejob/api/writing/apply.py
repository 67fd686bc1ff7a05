"""Server-side apply: merge an applied configuration and record its field manager.

The manager owns the fields that it applies. A field that it no longer applies is removed unless
another manager owns it. Changing a field that another manager owns requires force. Pure: the
result shares nothing with the arguments.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from onejob.api.documents import deep_copy
from onejob.api.schema.shapes import ListShape, MapShape, ObjectShape, Shape, field_shape
from onejob.api.strategy import Document
from onejob.api.writing.apply_conflicts import FieldConflict, conflict_error, find_conflicts
from onejob.api.writing.field_sets import (
    FieldPath,
    compare,
    encode_fields,
    fields_of,
    item_element,
    remove_fields,
    render_field,
    with_parents,
)
from onejob.api.writing.managed_fields import (
    SERVER_FIELDS,
    Entry,
    all_fields,
    read_entries,
    reset_fields,
    skeleton,
    write_entries,
)
from onejob.api.writing.metadata import timestamp
from onejob.planning.names import LAST_APPLIED
from onejob.wire.errors import BadRequest

_KUBECTL: Final = "kubectl"
#: Manager of the fields that an object had before its first apply.
_BEFORE_FIRST_APPLY: Final = "before-first-apply"


def apply(
    live: Document | None,
    applied: Document,
    manager: str,
    force: bool,
    type_: ObjectShape,
    now: datetime,
    subresource: str = "",
) -> Document:
    """Return `live` merged with `applied`, including managedFields. `live` is None for a create.

    Idempotent: applying the same configuration again changes nothing.

    Raises:
        Conflict: without `force`, naming each field that another manager owns and that would
            change.
        BadRequest: if `applied` sets managedFields, or its keyed lists lack or repeat keys.
    """
    if applied.get("metadata", {}).get("managedFields"):
        raise BadRequest("metadata.managedFields must be nil")
    wanted = _applicable(applied, type_, subresource)
    _check_keys(wanted, type_, "")
    entries = _entries_of(live, type_, now, subresource)
    stated = fields_of(wanted, type_) - SERVER_FIELDS
    own = Entry(
        manager, "Apply", type_.api_version, subresource, timestamp(now), encode_fields(stated)
    )
    previous = next((entry for entry in entries if entry.identity == own.identity), None)
    others = [entry for entry in entries if entry is not previous]

    base: Document = {**live} if live is not None else skeleton(type_)
    base["metadata"] = {k: v for k, v in base["metadata"].items() if k != "managedFields"}
    merged: Document = _merge(base, wanted, type_)
    if previous is not None:
        owned_by_any = with_parents(stated.union(*(entry.fields for entry in others)))
        _remove(merged, previous.fields - owned_by_any, type_)
    changes = compare(base, merged, type_).without(reset_fields(type_, subresource))
    changed = frozenset(changes.added | changes.modified)
    conflicts = find_conflicts(others, changed)
    if conflicts and not force and not _left_by_kubectl(conflicts, manager, live, type_):
        raise conflict_error(conflicts)
    others = [
        replace(entry, encoded=remove_fields(entry.encoded, changed | changes.removed))
        for entry in others
    ]
    if previous is not None and changes.same and previous.encoded == own.encoded:
        own = previous
    result = merged if live is not None else deep_copy(wanted)
    _refresh_last_applied(result, applied, manager)
    write_entries(result, [*others, own])
    return result


def merge_configuration(live: Document, applied: Document, type_: ObjectShape) -> Document:
    """Return `live` merged with an applied configuration, without field managers.

    Raises BadRequest if keyed lists of `applied` lack or repeat keys.
    """
    _check_keys(applied, type_, "")
    merged: Document = _merge(live, applied, type_)
    return merged


def _applicable(applied: Document, type_: ObjectShape, subresource: str) -> Document:
    """Return a copy of `applied` without managedFields and the fields that this endpoint resets."""
    wanted: Document = deep_copy(applied)
    wanted.setdefault("metadata", {}).pop("managedFields", None)
    if subresource == "resize":
        return _resources_only(wanted)
    for path in reset_fields(type_, subresource):
        holder: Any = wanted
        for element in path[:-1]:
            holder = holder.get(element.removeprefix("f:"), {})
        holder.pop(path[-1].removeprefix("f:"), None)
    return wanted


def _resources_only(pod: Document) -> Document:
    """Return the parts of a Pod that `resize` changes, with those that identify them."""
    spec: Document = pod.get("spec") or {}
    kept: Document = {name: pod[name] for name in ("apiVersion", "kind", "metadata") if name in pod}
    kept["spec"] = {"resources": spec["resources"]} if "resources" in spec else {}
    for field in ("containers", "initContainers"):
        if field in spec:
            kept["spec"][field] = [
                {name: each[name] for name in ("name", "resources", "resizePolicy") if name in each}
                for each in spec[field]
            ]
    return kept


def _entries_of(
    live: Document | None, type_: ObjectShape, now: datetime, subresource: str
) -> list[Entry]:
    if live is None:
        return []
    entries = read_entries(deep_copy(live))
    if any(entry.subresource in ("", subresource) for entry in entries):
        return entries
    found = all_fields(live, type_, subresource)
    before = Entry(
        _BEFORE_FIRST_APPLY, "Update", type_.api_version, subresource, timestamp(now), found
    )
    return [*entries, before]


def _check_keys(value: Any, shape: Shape, path: str) -> None:
    """Raise BadRequest for a keyed list with a missing or duplicate key: it could not be merged."""
    if isinstance(value, dict):
        for name, item in value.items():
            _check_keys(item, field_shape(shape, name), f"{path}.{name}")
    elif isinstance(value, list) and isinstance(shape, ListShape):
        seen: set[str] = set()
        for index, item in enumerate(value):
            if shape.list_type != "atomic":
                element = item_element(item, shape)
                if element is None:
                    keys = ", ".join(shape.keys)
                    raise BadRequest(
                        f"failed to create typed patch object: {path}: element {index}: "
                        f"associative list with keys has an element that omits key field {keys}"
                    )
                if element in seen:
                    raise BadRequest(
                        f"failed to create typed patch object: {path}: duplicate entries for key "
                        f"{render_field((element,))}"
                    )
                seen.add(element)
            _check_keys(item, shape.items, f"{path}[{index}]")


def _merge(live: Any, wanted: Any, shape: Shape) -> Any:
    """Return the live value with the applied one merged into it."""
    match live, wanted, shape:
        case dict(), dict(), ObjectShape(atomic=False) | MapShape(atomic=False):
            return _merge_maps(live, wanted, shape)
        case list(), list(), ListShape(list_type="set" | "map"):
            return _merge_lists(live, wanted, shape)
        case _:
            return deep_copy(wanted)


def _merge_maps(live: Document, wanted: Document, shape: Shape) -> Document:
    merged = {
        name: _merge(item, wanted[name], field_shape(shape, name))
        if name in wanted
        else deep_copy(item)
        for name, item in live.items()
    }
    for name, item in wanted.items():
        if name not in live:
            merged[name] = deep_copy(item)
    return merged


def _merge_lists(live: list[Any], wanted: list[Any], shape: ListShape) -> list[Any]:
    """Merge two keyed lists or sets.

    Items in `wanted` take its order; items only in `live` keep their position relative to the
    others.
    """
    live_elements = [item_element(item, shape) for item in live]
    # Of duplicate keys, the first item wins.
    present = dict(zip(reversed(live_elements), reversed(live), strict=True))
    stated = {item_element(item, shape): item for item in wanted}
    merged: list[Any] = []
    at = 0
    for element, item in stated.items():
        while at < len(live) and live_elements[at] not in stated:
            merged.append(deep_copy(live[at]))
            at += 1
        if at < len(live) and live_elements[at] == element:
            at += 1
        merged.append(
            _merge(present[element], item, shape.items) if element in present else deep_copy(item)
        )
    rest = zip(live[at:], live_elements[at:], strict=True)
    merged.extend(deep_copy(item) for item, element in rest if element not in stated)
    return merged


def _remove(value: Any, unwanted: frozenset[FieldPath], shape: Shape) -> None:
    """Remove fields from a document in place, and containers that become empty thereby."""
    below: dict[str, set[FieldPath]] = {}
    for path in unwanted:
        below.setdefault(path[0], set()).add(path[1:])
    if isinstance(value, dict):
        for element, paths in below.items():
            name = element.removeprefix("f:")
            if name not in value:
                continue
            if () in paths:
                del value[name]
                continue
            full = bool(value[name])
            _remove(value[name], frozenset(paths), field_shape(shape, name))
            if full and value[name] in ({}, []):
                del value[name]
    elif isinstance(value, list) and isinstance(shape, ListShape):
        kept = []
        for item in value:
            paths = below.get(item_element(item, shape) or "", set())
            if () not in paths:
                if paths:
                    _remove(item, frozenset(paths), shape.items)
                kept.append(item)
        value[:] = kept


def _left_by_kubectl(
    conflicts: Sequence[FieldConflict], manager: str, live: Document | None, type_: ObjectShape
) -> bool:
    """Return whether all conflicting fields were set by kubectl's client-side apply.

    A user who migrates from client-side to server-side apply may overwrite these fields; they are
    listed in kubectl's last-applied annotation.
    """
    if manager != _KUBECTL or live is None:
        return False
    try:
        last = msgspec.json.decode(live["metadata"]["annotations"][LAST_APPLIED])
    except (KeyError, msgspec.DecodeError):
        return False
    allowed = fields_of(last, type_) if isinstance(last, dict) else frozenset()
    return {conflict.path for conflict in conflicts} <= allowed


def _refresh_last_applied(result: Document, applied: Document, manager: str) -> None:
    """Update an existing last-applied annotation if the manager is kubectl.

    A later client-side apply then computes its patch from the configuration applied here.
    """
    annotations = result["metadata"].get("annotations", {})
    if manager != _KUBECTL or LAST_APPLIED not in annotations:
        return
    stated = deep_copy(applied)
    stated.get("metadata", {}).get("annotations", {}).pop(LAST_APPLIED, None)
    annotations[LAST_APPLIED] = msgspec.json.encode(stated, order="sorted").decode() + "\n"
