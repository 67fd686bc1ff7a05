"""The writes that every Pod of every Job goes through, without taking it apart.

onejob's own controllers and node agent create, bind, report on and free Pods thousands of
times a second. These functions do exactly what the general path in `writes` does for such
requests, but decode only the part that changes and copy the rest as bytes. Each returns None
for anything out of the ordinary, which is then left to the general path; the tests compare
the two.
"""

from collections import OrderedDict
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec import Struct

from onejob.api.writing.metadata import generated_name, new_uid, timestamp
from onejob.api.writing.placing import ChooseNode
from onejob.api.writing.pod_pieces import (
    PodPieces,
    cut_pod,
    is_placeable,
    phase_of,
    read_members,
)
from onejob.api.writing.writes import Writes
from onejob.objects.meta import NAMESPACES, PODS, Key
from onejob.store.base import Stored
from onejob.wire.errors import not_found
from onejob.wire.requests import Outcome, WriteOptions

_encode = msgspec.json.encode

#: What a Job's Pods bring along; the rest of the metadata is for the server to give.
_BROUGHT: Final = frozenset(
    ("generateName", "namespace", "labels", "annotations", "finalizers", "ownerReferences")
)
#: Lists of a Pod's status that a strategic patch merges by key; the rest it replaces.
_MERGED_LISTS: Final = frozenset(("podIPs", "hostIPs", "resourceClaimStatuses"))
#: Where the states of containers are.
_STATES: Final = ("containerStatuses", "initContainerStatuses")
_REMEMBERED_SPECS: Final = 256
#: About 2 kB each. Those that are not remembered are cut anew.
_REMEMBERED_PODS: Final = 4_096
_HOSTNAME: Final = b'{"hostname":"'


class _PatchedMetadata(msgspec.Struct, forbid_unknown_fields=True):
    uid: str = ""
    freed: list[str] = msgspec.field(
        name="$deleteFromPrimitiveList/finalizers", default_factory=list
    )


class _QuickPatch(msgspec.Struct, forbid_unknown_fields=True):
    metadata: _PatchedMetadata = msgspec.field(default_factory=_PatchedMetadata)
    status: dict[str, msgspec.Raw] | None = None


class _CreatedPod(msgspec.Struct, rename="camel"):
    metadata: dict[str, Any]
    spec: msgspec.Raw


class _EndedMetadata(msgspec.Struct):
    uid: str


class _EndedStatus(msgspec.Struct, frozen=True):
    phase: str = ""


class _EndedPod(msgspec.Struct):
    metadata: _EndedMetadata
    status: _EndedStatus = _EndedStatus()


_read_object = msgspec.json.Decoder(dict[str, Any]).decode
_read_conditions = msgspec.json.Decoder(list[dict[str, Any]]).decode
_read_patch = msgspec.json.Decoder(_QuickPatch).decode
#: There are few ways to free a Pod, and all Pods are freed.
_read_freeing = lru_cache(maxsize=16)(_read_patch)
_read_created = msgspec.json.Decoder(_CreatedPod).decode
_read_ended = msgspec.json.Decoder(_EndedPod).decode


class _KnownSpec(Struct, frozen=True):
    """What defaults and preparation make of a spec that was found valid, hostname aside."""

    #: The members of the defaulted spec, without the opening brace.
    members: bytes
    placeable: bool
    status: bytes
    phase: bytes
    generation: int


class _Blank(Struct, frozen=True):
    """A Pod to create, but for what is its own."""

    generate_name: str
    finalizers: tuple[str, ...]
    #: The members of the metadata, without the braces.
    metadata: bytes
    spec: bytes
    known: _KnownSpec


class QuickWrites:
    def __init__(self, writes: Writes) -> None:
        self._writes = writes
        self._store = writes.store
        self._specs: OrderedDict[bytes, _KnownSpec] = OrderedDict()
        #: All Pods of a Job without indexes are made from the same bytes.
        self._last_blank: tuple[str, bytes, _Blank] | None = None
        #: The pieces of the Pods that were written last, and of which revision they are.
        self._pods: OrderedDict[Key, tuple[int, PodPieces]] = OrderedDict()

    def __len__(self) -> int:
        """Of how many Pods the pieces are kept; for tests and figures."""
        return len(self._pods)

    def create_pod(
        self,
        namespace: str,
        document: bytes,
        options: WriteOptions,
        choose_node: ChooseNode | None = None,
    ) -> Outcome | None:
        """Create a Pod whose spec was created before, as all Pods of one Job are."""
        if not options.trusted or options.dry_run:
            return None
        if self._writes.admission.confines_pods(namespace, document):
            return None
        blank = self._blank(namespace, document)
        if blank is None or not self._open_for_content(namespace):
            return None
        writes, known = self._writes, blank.known
        uid = new_uid(writes.rng)
        name = generated_name(blank.generate_name, writes.rng)
        key = Key(PODS, namespace, name)
        if self._store.newest(key) is not None:
            return None
        now = timestamp(writes.clock.now())
        before_revision = (
            b'{"apiVersion":"v1","kind":"Pod","metadata":{%b,"uid":"%b","creationTimestamp":"%b",'
            b'"name":%b,%b"resourceVersion":"'
        ) % (
            blank.metadata,
            uid.encode(),
            now.encode(),
            _encode(name),
            b'"generation":%d,' % known.generation if known.generation else b"",
        )
        pieces = PodPieces(
            before_revision=before_revision,
            after_revision=b'"}',
            spec=blank.spec,
            status=known.status,
            uid=uid,
            deleting=False,
            finalizers=blank.finalizers,
            placeable=known.placeable,
            phase=known.phase,
            generation=known.generation,
        )
        if choose_node is not None and (node := choose_node(pieces.spec)):
            pieces = pieces.bound(node, now) or pieces
        return self._stage(key, 0, pieces, 201)

    def learn_spec(self, document: bytes, created: bytes, *, placed: bool = False) -> None:
        """Remember what the general path made of a Pod's spec: the next one like it is quick.
        Where it was `placed` is not for the next one."""
        rest, _ = _split_hostname(bytes(_read_created(document).spec))
        result = _read_object(created)
        if placed:
            del result["spec"]["nodeName"], result["status"]["conditions"]
        spec, status = result["spec"], _encode(result.get("status", {}))
        spec.pop("hostname", None)
        members = _encode(spec)
        self._specs[rest] = _KnownSpec(
            members[1:],
            is_placeable(members),
            status,
            phase_of(read_members(status)),
            result["metadata"].get("generation", 0),
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
            patch = _read_patch(body) if subresource else _read_freeing(body)
        except msgspec.DecodeError:
            return None
        stored = self._store.newest(key)
        if stored is None:
            raise not_found(PODS, key.name)
        pod = self._pieces(stored)
        if pod is None or (patch.metadata.uid and patch.metadata.uid != pod.uid):
            return None
        if subresource == "" and patch.status is None:
            changed = pod.freed(patch.metadata.freed)
        elif subresource == "status" and patch.status is not None and not patch.metadata.freed:
            if b'"terminated"' in pod.status and _changes_states(pod.status, patch.status):
                # Whether a container that has ended may have another state is for its rule to say.
                return None
            status = _merged_status(pod.status, patch.status)
            changed = None if status is None else pod.with_status(status)
        else:
            return None
        if changed is None:
            return None
        if changed == pod:
            return Outcome(200, stored.value, stored.revision)
        # A Pod that has begun to run is shown among those that are ready, and no more.
        begun = changed.running and not pod.running
        return self._stage(key, stored.revision, changed, 200, quiet=begun)

    def bind_pod(self, key: Key, node: str, uid: str, options: WriteOptions) -> Outcome | None:
        if not options.trusted or options.dry_run:
            return None
        stored = self._store.newest(key)
        pod = None if stored is None else self._pieces(stored)
        if stored is None or pod is None or (uid and uid != pod.uid):
            return None
        bound = pod.bound(node, timestamp(self._writes.clock.now()))
        if bound is None:
            return None
        return self._stage(key, stored.revision, bound, 201, quiet=True)

    def forget(self, key: Key) -> None:
        """Whoever deletes a Pod writes no more to it. Nothing but memory depends on this."""
        self._pods.pop(key, None)

    def delete_pod(self, key: Key, uid: str) -> Outcome | None:
        """Take away a Pod that has ended and holds no finalizer, if it has this UID."""
        stored = self._store.newest(key)
        if stored is None or b'"finalizers"' in stored.value:
            return None
        pod = _read_ended(stored.value)
        if pod.status.phase not in ("Succeeded", "Failed") or (uid and uid != pod.metadata.uid):
            return None
        return self._writes.remove(stored)

    def _blank(self, namespace: str, document: bytes) -> _Blank | None:
        last = self._last_blank
        if last is not None and last[1] == document and last[0] == namespace:
            return last[2]
        pod = _read_created(document)
        rest, hostname = _split_hostname(bytes(pod.spec))
        known = self._specs.get(rest)
        # Empty lists and maps of metadata are never shown.
        metadata = {field: value for field, value in pod.metadata.items() if value}
        if known is None or "generateName" not in metadata or not metadata.keys() <= _BROUGHT:
            return None
        if metadata.setdefault("namespace", namespace) != namespace:
            return None
        blank = _Blank(
            metadata["generateName"],
            tuple(metadata.get("finalizers", ())),
            _encode(metadata)[1:-1],
            (hostname or b"{") + known.members,
            known,
        )
        self._last_blank = (namespace, document, blank)
        return blank

    def _pieces(self, stored: Stored) -> PodPieces | None:
        revision, pieces = self._pods.pop(stored.key, (0, None))
        return pieces if revision == stored.revision else cut_pod(stored.value, stored.revision)

    def _stage(
        self, key: Key, expected: int, pod: PodPieces, code: int, *, quiet: bool = False
    ) -> Outcome:
        cold = pod.ended and not pod.finalizers
        staged = self._store.stage(key, expected, pod.document, cold=cold, quiet=quiet)
        assert staged is not None, "only a deletion leaves nothing behind"
        if not cold:
            self._pods[key] = (staged.revision, pod)
            if len(self._pods) > _REMEMBERED_PODS:
                self._pods.popitem(last=False)
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


def _changes_states(status: bytes, patch: dict[str, msgspec.Raw]) -> bool:
    before = read_members(status)
    return any(field in patch and patch[field] != before.get(field) for field in _STATES)


def _merged_status(status: bytes, patch: dict[str, msgspec.Raw]) -> dict[str, msgspec.Raw] | None:
    """A status after a patch; None if that takes more than replacing values and merging
    conditions by their type."""
    merged = read_members(status)
    for field, value in patch.items():
        text = bytes(value)
        # An object would be merged member by member.
        if text[:1] == b"{" or text == b"null" or field[:1] == "$":
            return None
        if field == "conditions":
            conditions = _merged_conditions(bytes(merged.get(field, b"[]")), text)
            if conditions is None:
                return None
            merged[field] = msgspec.Raw(conditions)
        elif field in _MERGED_LISTS and bytes(merged.get(field, text)) != text:
            return None
        else:
            merged[field] = value
    return merged


@lru_cache(maxsize=256)
def _merged_conditions(before: bytes, patch: bytes) -> bytes | None:
    """Remembered: Pods that report in the same second mostly have the same conditions."""
    conditions, changes = _read_conditions(before), _read_conditions(patch)
    known = {condition["type"]: place for place, condition in enumerate(conditions)}
    named: list[dict[str, Any]] = []
    for condition in changes:
        if "$patch" in condition or None in condition.values():
            return None
        place = known.get(condition["type"])
        named.append(condition if place is None else {**conditions[place], **condition})
    # Woven as `strategic_merge` does it: those named in their order, the others in theirs.
    types = {condition["type"] for condition in changes}
    rest = [condition for condition in conditions if condition["type"] not in types]
    woven: list[dict[str, Any]] = []
    for condition in named:
        place = known.get(condition["type"], -1)
        while rest and known[rest[0]["type"]] < place:
            woven.append(rest.pop(0))
        woven.append(condition)
    return _encode(woven + rest)
