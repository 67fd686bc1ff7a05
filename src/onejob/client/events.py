"""Event recorder: best effort, rate limited and deduplicated.

The limits equal upstream's: per source and object a burst of 25, then one per five minutes. An
Event equal to an earlier one increases that one's count. From the tenth Event on that differs only
in its message, without a gap of ten minutes, all are combined into one.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from datetime import datetime
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from onejob.client.base import Client, Create, Op, Patch
from onejob.clock import Clock
from onejob.objects.meta import EVENTS, Key, Meta
from onejob.wire.errors import CALL_FAILURES, ApiError, InsufficientStorage, NotFound

log = logging.getLogger(__name__)

_BURST = 25.0
_REFILL_PER_SECOND = 1 / 300
_SIMILAR_LIMIT = 10
_SIMILAR_SECONDS = 600.0
_REMEMBERED = 4096
#: Seconds that Events wait when the disk is full.
_RETRY_SECONDS = 5.0
_COMBINED = "(combined from similar events): "

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class About(Struct, frozen=True):
    """Reference to the object that an Event is about."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    resource_version: str = ""


def about(api_version: str, kind: str, metadata: Meta) -> About:
    """Return the reference of an Event to its object."""
    return About(
        api_version,
        kind,
        metadata.namespace,
        metadata.name,
        metadata.uid,
        metadata.resource_version,
    )


class _Identity(NamedTuple):
    """Deduplication key: Events equal in these fields are occurrences of one Event."""

    uid: str
    type: str
    reason: str
    #: The same constant for all combined Events.
    message: str


class _Written(Struct):
    """Existing Event: its key, its number of occurrences and the time of the first."""

    key: Key
    count: int
    first: datetime


class _Due(Struct):
    """Pending write of an Event: its newest state, however often it occurred."""

    what: About
    written: _Written
    #: Whether the Event exists already, and only its count goes up.
    repeated: bool
    count: int
    message: str
    at: datetime


class _Allowance(Struct):
    tokens: float = _BURST
    at: float = 0.0


class _Similar(Struct):
    messages: set[str] = field(default_factory=set)
    at: float = 0.0


class _Recent(Generic[K, T]):
    """Bounded LRU map."""

    def __init__(self) -> None:
        self._items: OrderedDict[K, T] = OrderedDict()

    def get(self, key: K) -> T | None:
        item = self._items.get(key)
        if item is not None:
            self._items.move_to_end(key)
        return item

    def put(self, key: K, item: T) -> T:
        self._items[key] = item
        self._items.move_to_end(key)
        if len(self._items) > _REMEMBERED:
            self._items.popitem(last=False)
        return item

    def drop(self, key: K) -> None:
        self._items.pop(key, None)


class EventRecorder:
    """Recorder of one component's Events.

    `record` never waits and never fails; the background task `run` writes recorded Events.
    """

    def __init__(self, client: Client, component: str, clock: Clock, *, host: str = "") -> None:
        self._client = client
        self._component = component
        self._clock = clock
        self._host = host
        self._allowances: _Recent[tuple[str, str], _Allowance] = _Recent()
        self._similar: _Recent[tuple[str, str, str], _Similar] = _Recent()
        self._written: _Recent[_Identity, _Written] = _Recent()
        self._due: dict[_Identity, _Due] = {}
        self._wake = asyncio.Event()
        #: Whether Events were put back because the disk is full.
        self._held_up = False
        self._sequence = 0

    def record(self, what: About, type_: str, reason: str, *messages: str) -> None:
        """Record one Event for each message."""
        if log.isEnabledFor(logging.INFO):
            # Events expire; the server's log keeps them for longer.
            for message in messages:
                log.info("%s %s/%s: %s: %s", what.kind, what.namespace, what.name, reason, message)
        moment = self._clock.monotonic()
        similar = self._similar_to(what, type_, reason, moment)
        allowance = self._allowance(what, moment)
        uid, known = what.uid or what.name, similar.messages
        combined = _Identity(uid, type_, reason, _COMBINED)
        for message in messages:
            if len(known) < _SIMILAR_LIMIT - 1:
                known.add(message)
            if message in known:
                same = _Identity(uid, type_, reason, message)
            else:
                same, message = combined, _COMBINED + message
            written = self._written.get(same)
            if written is not None:
                # An occurrence that is not written now is included in the count of the next one
                # that is.
                written.count += 1
            if allowance.tokens >= 1:
                allowance.tokens -= 1
                self._put_due(what, same, written, message)

    def _put_due(
        self, what: About, same: _Identity, written: _Written | None, message: str
    ) -> None:
        now = self._clock.now()
        due = self._due.get(same)
        if due is None:
            repeated = written is not None
            if written is None:
                written = self._written.put(same, _Written(self._new_key(what, now), 1, now))
            self._due[same] = _Due(what, written, repeated, written.count, message, now)
        else:
            due.count, due.message, due.at = due.written.count, message, now
        self._wake.set()

    async def run(self) -> None:
        """Write recorded Events until cancelled."""
        while True:
            await self._wake.wait()
            await self.flush()
            if self._held_up:
                # A full disk may last for a while.
                self._held_up = False
                await asyncio.sleep(_RETRY_SECONDS)

    async def flush(self) -> None:
        """Write all Events recorded so far."""
        self._wake.clear()
        due, self._due = self._due, {}
        if not due:
            return
        expired = await self._write(due)
        if expired:
            await self._write(expired)

    async def _write(self, due: Mapping[_Identity, _Due]) -> dict[_Identity, _Due]:
        """Write Events; return the ones to create afresh.

        These are updates of Events that no longer exist.
        """
        ops = [self._write_of(same, entry) for same, entry in due.items()]
        try:
            results = await self._client.write_many(ops)
        except InsufficientStorage as error:
            self._requeue(due)
            log.warning("%d events are waiting for disk space: %s", len(due), error)
            return {}
        except CALL_FAILURES as error:
            log.warning("lost %d events: %s", len(due), error)
            return {}
        expired: dict[_Identity, _Due] = {}
        for (same, entry), result in zip(due.items(), results, strict=True):
            if isinstance(result, NotFound) and entry.repeated:
                expired[same] = replace(entry, repeated=False)
            elif isinstance(result, ApiError):
                self._written.drop(same)
                log.info("lost an event: %s", result)
        return expired

    def _requeue(self, due: Mapping[_Identity, _Due]) -> None:
        """Put Events back for a later attempt, the oldest first, at most `_REMEMBERED`."""
        newer, self._due = self._due, dict(due)
        for same, entry in newer.items():
            if (before := self._due.pop(same, None)) is not None:
                entry = replace(entry, repeated=before.repeated)
            self._due[same] = entry
        while len(self._due) > _REMEMBERED:
            del self._due[next(iter(self._due))]
        self._held_up = True
        self._wake.set()

    def _write_of(self, same: _Identity, due: _Due) -> Op:
        """Return the creation of a new Event, or the patch that counts a repeated one."""
        if not due.repeated:
            return _creation(self._source(), same, due)
        body = {"count": due.count, "lastTimestamp": _format_time(due.at), "message": due.message}
        return Patch(due.written.key, msgspec.json.encode(body), "merge")

    def _allowance(self, what: About, moment: float) -> _Allowance:
        """Return the allowance of an object, as of now."""
        place = (what.namespace, what.uid or what.name)
        allowance = self._allowances.get(place)
        if allowance is None:
            allowance = self._allowances.put(place, _Allowance(at=moment))
        elapsed = moment - allowance.at
        allowance.tokens = min(_BURST, allowance.tokens + elapsed * _REFILL_PER_SECOND)
        allowance.at = moment
        return allowance

    def _similar_to(self, what: About, type_: str, reason: str, moment: float) -> _Similar:
        """Return the record of Events that differ only in their message."""
        key = (what.uid or what.name, type_, reason)
        similar = self._similar.get(key)
        if similar is None or moment - similar.at > _SIMILAR_SECONDS:
            similar = self._similar.put(key, _Similar())
        similar.at = moment
        return similar

    def _new_key(self, what: About, now: datetime) -> Key:
        """Return a new name for an Event about an object."""
        self._sequence += 1
        suffix = f"{int(now.timestamp() * 1_000_000):x}{self._sequence:04x}"
        return Key(EVENTS, what.namespace or "default", f"{what.name}.{suffix}")

    def _source(self) -> dict[str, str]:
        """Return the source of all Events."""
        source = {"component": self._component}
        return {**source, "host": self._host} if self._host else source


def _creation(source: dict[str, str], same: _Identity, due: _Due) -> Create:
    """Return the creation of an Event."""
    what = due.what
    involved: dict[str, Any] = {
        "kind": what.kind,
        "namespace": what.namespace,
        "name": what.name,
        "uid": what.uid,
        "apiVersion": what.api_version,
        "resourceVersion": what.resource_version,
    }
    _, namespace, name = due.written.key
    document = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": namespace},
        "involvedObject": {field: value for field, value in involved.items() if value},
        "reason": same.reason,
        "message": due.message,
        "source": source,
        "firstTimestamp": _format_time(due.written.first),
        "lastTimestamp": _format_time(due.at),
        "count": due.count,
        "type": same.type,
        "reportingComponent": source["component"],
        "reportingInstance": source.get("host", ""),
    }
    return Create(EVENTS, namespace, msgspec.json.encode(document))


def _format_time(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
