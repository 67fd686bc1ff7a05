"""The four writes that every Pod of every Job goes through, without taking it apart.

onejob's own controllers and node agent create, bind, report on and free Pods thousands of
times a second. These functions do exactly what the general path in `writes` does for such
requests, but decode only the part that changes and copy the rest as bytes. Each returns None
for anything out of the ordinary, which is then left to the general path; the tests compare
the two.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from onejob.api.errors import not_found
from onejob.api.metadata import generated_name, new_uid, timestamp
from onejob.api.requests import Outcome, WriteOptions
from onejob.api.writes import Writes
from onejob.objects.meta import NAMESPACES, PODS, Key

_encode = msgspec.json.encode

#: Lists of a Pod's status that a strategic patch merges by key; the rest it replaces.
_MERGED_LISTS: Final = frozenset(("podIPs", "hostIPs", "resourceClaimStatuses"))
_REMEMBERED_SPECS: Final = 256
_HOSTNAME: Final = b'{"hostname":"'


class _Pod(msgspec.Struct, rename="camel", omit_defaults=True):
    """A Pod taken apart no further than needed."""

    api_version: str
    kind: str
    metadata: dict[str, Any]
    spec: msgspec.Raw
    status: msgspec.Raw = msgspec.Raw(b"{}")


class _Placement(msgspec.Struct, rename="camel"):
    node_name: str = ""
    scheduling_gates: list[msgspec.Raw] = []


class _PatchedMetadata(msgspec.Struct, forbid_unknown_fields=True):
    uid: str = ""
    freed: list[str] = msgspec.field(
        name="$deleteFromPrimitiveList/finalizers", default_factory=list
    )


class _QuickPatch(msgspec.Struct, forbid_unknown_fields=True):
    metadata: _PatchedMetadata = msgspec.field(default_factory=_PatchedMetadata)
    status: dict[str, Any] | None = None


class _CreatedPod(msgspec.Struct, rename="camel"):
    metadata: dict[str, Any]
    spec: msgspec.Raw


_read_pod = msgspec.json.Decoder(_Pod).decode
_read_object = msgspec.json.Decoder(dict[str, Any]).decode
_read_placement = msgspec.json.Decoder(_Placement).decode
_read_patch = msgspec.json.Decoder(_QuickPatch).decode
_read_created = msgspec.json.Decoder(_CreatedPod).decode


@dataclass(frozen=True, slots=True)
class _KnownSpec:
    """What defaults and preparation make of a spec that was found valid, hostname aside."""

    #: The members of the defaulted spec, without the opening brace.
    members: bytes
    status: msgspec.Raw
    generation: int | None


class QuickWrites:
    def __init__(self, writes: Writes) -> None:
        self._writes = writes
        self._store = writes.store
        self._specs: OrderedDict[bytes, _KnownSpec] = OrderedDict()

    def create_pod(self, namespace: str, document: bytes, options: WriteOptions) -> Outcome | None:
        """Create a Pod whose spec was created before, as all Pods of one Job are."""
        if not options.trusted or options.dry_run:
            return None
        pod = _read_created(document)
        rest, hostname = _split_hostname(bytes(pod.spec))
        known = self._specs.get(rest)
        metadata = pod.metadata
        if known is None or not metadata.get("generateName") or metadata.get("name"):
            return None
        if not self._open_for_content(namespace):
            return None
        writes = self._writes
        name = generated_name(metadata["generateName"], writes.rng)
        key = Key(PODS, namespace, name)
        if self._store.newest(key) is not None:
            return None
        ordered_metadata = {
            "name": name,
            **metadata,
            "namespace": namespace,
            "uid": new_uid(writes.rng),
            "creationTimestamp": timestamp(writes.clock.now()),
        }
        if known.generation is not None:
            ordered_metadata["generation"] = known.generation
        spec = msgspec.Raw(hostname + known.members if hostname else b"{" + known.members)
        return self._stage(key, 0, _Pod("v1", "Pod", ordered_metadata, spec, known.status), 201)

    def learn_spec(self, document: bytes, created: bytes) -> None:
        """Remember what the general path made of a Pod's spec: the next one like it is quick."""
        rest, _ = _split_hostname(bytes(_read_created(document).spec))
        result = _read_object(created)
        spec = result["spec"]
        spec.pop("hostname", None)
        self._specs[rest] = _KnownSpec(
            _encode(spec)[1:],
            msgspec.Raw(_encode(result.get("status", {}))),
            result["metadata"].get("generation"),
        )
        if len(self._specs) > _REMEMBERED_SPECS:
            self._specs.popitem(last=False)

    def patch_pod(
        self, key: Key, body: bytes, subresource: str, options: WriteOptions
    ) -> Outcome | None:
        """Free a Pod of finalizers, or report its status, by strategic merge patch."""
        if not options.trusted or options.dry_run:
            return None
        try:
            patch = _read_patch(body)
        except msgspec.DecodeError:
            return None
        stored = self._store.newest(key)
        if stored is None:
            raise not_found(PODS, key.name)
        pod = _read_pod(stored.value)
        if patch.metadata.uid and patch.metadata.uid != pod.metadata["uid"]:
            return None
        if subresource == "" and patch.status is None:
            if "deletionTimestamp" in pod.metadata:
                # It may vanish with this write: the general path knows how.
                return None
            changed = _free(pod.metadata, patch.metadata.freed)
        elif subresource == "status" and patch.status is not None and not patch.metadata.freed:
            status = _read_object(pod.status)
            if not _merge_status(status, patch.status):
                return None
            before, pod.status = bytes(pod.status), msgspec.Raw(_encode(status))
            changed = before != bytes(pod.status)
        else:
            return None
        if not changed:
            return Outcome(200, stored.value, stored.revision)
        return self._stage(key, stored.revision, pod, 200)

    def bind_pod(self, key: Key, node: str, uid: str) -> Outcome | None:
        stored = self._store.newest(key)
        if stored is None:
            return None
        pod = _read_pod(stored.value)
        placement = _read_placement(pod.spec)
        status = _read_object(pod.status)
        ordinary = (
            not placement.node_name
            and not placement.scheduling_gates
            and "deletionTimestamp" not in pod.metadata
            and (not uid or uid == pod.metadata["uid"])
            and "conditions" not in status
            and bytes(pod.spec) != b"{}"
        )
        if not ordinary:
            return None
        now = timestamp(self._writes.clock.now())
        status["conditions"] = [
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": now}
        ]
        pod.status = msgspec.Raw(_encode(status))
        pod.spec = msgspec.Raw(b'{"nodeName":' + _encode(node) + b"," + bytes(pod.spec)[1:])
        return self._stage(key, stored.revision, pod, 201)

    def _stage(self, key: Key, expected: int, pod: _Pod, code: int) -> Outcome:
        metadata = pod.metadata

        def encode(revision: int) -> bytes:
            metadata["resourceVersion"] = str(revision)
            return _encode(pod)

        cold = not metadata.get("finalizers") and _has_ended(bytes(pod.status))
        staged = self._store.stage(key, expected, encode, cold=cold)
        assert staged is not None, "only a deletion leaves nothing behind"
        return Outcome(code, staged.value, staged.revision)

    def _open_for_content(self, namespace: str) -> bool:
        stored = self._store.newest(Key(NAMESPACES, "", namespace))
        return stored is not None and b'"deletionTimestamp"' not in stored.value


def _split_hostname(spec: bytes) -> tuple[bytes, bytes]:
    """The spec without its hostname, and the piece that has it, if it stands first: so the
    specs of an Indexed Job's Pods, which differ in nothing else, are recognised as one."""
    if not spec.startswith(_HOSTNAME):
        return spec, b""
    end = spec.find(b'"', len(_HOSTNAME))
    if end < 0 or spec[end : end + 2] != b'",' or b"\\" in spec[:end]:
        return spec, b""
    return b"{" + spec[end + 2 :], spec[: end + 2]


def _merge_status(status: dict[str, Any], patch: dict[str, Any]) -> bool:
    """Merge a status patch in place; False if it needs more than replacing values and merging
    conditions by their type."""
    for field, value in patch.items():
        if value is None or field.startswith("$"):
            return False
        if field == "conditions":
            merged = _merge_conditions(status.get("conditions", []), value)
            if merged is None:
                return False
            status["conditions"] = merged
        elif isinstance(value, dict) or (
            field in _MERGED_LISTS and status.get(field, value) != value
        ):
            return False
        else:
            status[field] = value
    return True


def _merge_conditions(
    conditions: list[dict[str, Any]], patch: list[dict[str, Any]]
) -> list[dict[str, Any]] | None:
    known = {condition["type"]: place for place, condition in enumerate(conditions)}
    named: list[dict[str, Any]] = []
    for condition in patch:
        if "$patch" in condition or None in condition.values():
            return None
        place = known.get(condition["type"])
        named.append(condition if place is None else {**conditions[place], **condition})
    # Woven as `strategic_merge` does it: those named in their order, the others in theirs.
    types = {condition["type"] for condition in patch}
    rest = [condition for condition in conditions if condition["type"] not in types]
    if not rest:
        return named
    woven: list[dict[str, Any]] = []
    for condition in named:
        place = known.get(condition["type"], -1)
        while rest and known[rest[0]["type"]] < place:
            woven.append(rest.pop(0))
        woven.append(condition)
    return woven + rest


def _free(metadata: dict[str, Any], names: list[str]) -> bool:
    held: list[str] = metadata.get("finalizers", [])
    kept = [name for name in held if name not in names]
    if kept:
        metadata["finalizers"] = kept
    else:
        metadata.pop("finalizers", None)
    return kept != held


class _Phase(msgspec.Struct):
    phase: str = ""


_read_phase = msgspec.json.Decoder(_Phase).decode


def _has_ended(status: bytes) -> bool:
    return _read_phase(status).phase in ("Succeeded", "Failed")
