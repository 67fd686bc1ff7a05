"""Events: what happened to an object, told to people. Best effort, and never too many.

Limits are upstream's recorder's: per source and object a burst of 25, then one per five
minutes; an event like an earlier one raises that one's count; more than ten alike but for
their message within ten minutes are combined into one.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, TypeVar

import msgspec

from onejob.api.errors import ApiError, NotFound
from onejob.client.base import Client, Create, Op, Patch
from onejob.clock import Clock
from onejob.objects.meta import EVENTS, Key, Meta

log = logging.getLogger(__name__)

_BURST = 25.0
_REFILL_PER_SECOND = 1 / 300
_SIMILAR_LIMIT = 10
_SIMILAR_SECONDS = 600.0
_REMEMBERED = 4096
_COMBINED = "(combined from similar events): "

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class About:
    """The object an event is about."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    resource_version: str = ""


def about(api_version: str, kind: str, metadata: Meta) -> About:
    return About(
        api_version,
        kind,
        metadata.namespace,
        metadata.name,
        metadata.uid,
        metadata.resource_version,
    )


@dataclass(slots=True)
class _Written:
    """An event that exists: where, and how often it was seen."""

    key: Key
    count: int


@dataclass(slots=True)
class _Allowance:
    tokens: float = _BURST
    at: float = 0.0


@dataclass(slots=True)
class _Similar:
    messages: set[str] = field(default_factory=set)
    at: float = 0.0


class _Recent(Generic[K, T]):
    """A bounded memory: the least recently used is forgotten first."""

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
    """`record` never waits and never fails; a background task writes what was recorded."""

    def __init__(self, client: Client, component: str, clock: Clock, *, host: str = "") -> None:
        self._client = client
        self._component = component
        self._clock = clock
        self._host = host
        self._allowances: _Recent[tuple[str, str], _Allowance] = _Recent()
        self._similar: _Recent[tuple[str, str, str], _Similar] = _Recent()
        self._written: _Recent[tuple[str, str, str, str], _Written] = _Recent()
        self._pending: list[tuple[tuple[str, str, str, str], Op]] = []
        self._wake = asyncio.Event()
        self._sequence = 0

    def record(self, what: About, type_: str, reason: str, message: str) -> None:
        now, moment = self._clock.now(), self._clock.monotonic()
        message = self._combine(what, type_, reason, message, moment)
        if not self._allowed(what, moment):
            return
        same = (what.uid or what.name, type_, reason, message)
        written = self._written.get(same)
        if written is not None:
            written.count += 1
            body = {"count": written.count, "lastTimestamp": _stamp(now)}
            patch = Patch(written.key, msgspec.json.encode(body), "merge")
            self._pending.append((same, patch))
        else:
            key, op = self._creation(what, type_, reason, message, now)
            self._written.put(same, _Written(key, 1))
            self._pending.append((same, op))
        self._wake.set()

    async def run(self) -> None:
        """Write what is recorded until cancelled."""
        while True:
            await self._wake.wait()
            await self.flush()

    async def flush(self) -> None:
        """Write what was recorded so far."""
        self._wake.clear()
        pending, self._pending = self._pending, []
        if not pending:
            return
        try:
            results = await self._client.write_many([op for _, op in pending])
        except (ApiError, OSError) as error:
            log.warning("%d events are lost: %s", len(pending), error)
            return
        for (same, op), result in zip(pending, results, strict=True):
            if isinstance(result, ApiError):
                # Expired or deleted meanwhile: the next one like it is written afresh.
                self._written.drop(same)
                if not (isinstance(result, NotFound) and isinstance(op, Patch)):
                    log.info("an event is lost: %s", result)

    def _allowed(self, what: About, moment: float) -> bool:
        allowance = self._allowances.get((what.namespace, what.uid or what.name))
        if allowance is None:
            allowance = self._allowances.put(
                (what.namespace, what.uid or what.name), _Allowance(at=moment)
            )
        elapsed = moment - allowance.at
        allowance.tokens = min(_BURST, allowance.tokens + elapsed * _REFILL_PER_SECOND)
        allowance.at = moment
        if allowance.tokens < 1:
            return False
        allowance.tokens -= 1
        return True

    def _combine(self, what: About, type_: str, reason: str, message: str, moment: float) -> str:
        key = (what.uid or what.name, type_, reason)
        similar = self._similar.get(key)
        if similar is None or moment - similar.at > _SIMILAR_SECONDS:
            similar = self._similar.put(key, _Similar())
        similar.at = moment
        if len(similar.messages) < _SIMILAR_LIMIT or message in similar.messages:
            similar.messages.add(message)
            return message
        return _COMBINED + message

    def _creation(
        self, what: About, type_: str, reason: str, message: str, now: datetime
    ) -> tuple[Key, Create]:
        namespace = what.namespace or "default"
        self._sequence += 1
        suffix = f"{int(now.timestamp() * 1_000_000):x}{self._sequence:04x}"
        name = f"{what.name}.{suffix}"
        involved: dict[str, Any] = {
            "kind": what.kind,
            "namespace": what.namespace,
            "name": what.name,
            "uid": what.uid,
            "apiVersion": what.api_version,
            "resourceVersion": what.resource_version,
        }
        source = {"component": self._component}
        if self._host:
            source["host"] = self._host
        document = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": {field: value for field, value in involved.items() if value},
            "reason": reason,
            "message": message,
            "source": source,
            "firstTimestamp": _stamp(now),
            "lastTimestamp": _stamp(now),
            "count": 1,
            "type": type_,
            "reportingComponent": self._component,
            "reportingInstance": self._host,
        }
        return Key(EVENTS, namespace, name), Create(
            EVENTS, namespace, msgspec.json.encode(document)
        )


def _stamp(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
