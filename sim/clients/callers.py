"""HTTP callers, and a check of the contract of `Client`: responses match the server's writes."""

import asyncio
from random import Random
from typing import Any

import msgspec

from onejob.client.base import Create, Delete, Op, Patch, Result, Written
from onejob.client.http import HttpClient
from onejob.objects.meta import Key
from onejob.wire.errors import AlreadyExists, ApiError, InsufficientStorage
from sim.checks.problems import Problems
from sim.clients.log import ServerLog
from sim.faults import Trace
from sim.network.links import Arrival

ONCE = "a create happens once"
OURS = "a create is answered with what was sent"
UNKNOWN = "an unknown result is looked into"
REVISION = "a cache that has the revision of a write shows the write"
BATCH = "each write of a batch has its own result"
ORDER = "writes of one object are tried in order"
RESENT = "no write is sent twice unless the server said that it did nothing"
CONFIG_MAPS = "configmaps"
_MARKER = "sim/marker"
#: Requests after which a client may report the result of a create as unknown.
_MIN_ATTEMPTS = 4


class Caller:
    """One client with its own connections."""

    def __init__(
        self,
        number: int,
        client: HttpClient,
        server: ServerLog,
        problems: Problems,
        trace: Trace,
        settled: set[str],
    ) -> None:
        """Initialize the caller.

        `settled` holds the markers of finished creates of all callers. Callers delete only those
        objects: a create whose object is deleted before its response arrives creates it again.
        """
        self._number = number
        self._client = client
        self._server = server
        self._problems = problems
        self._trace = trace
        self._settled = settled
        self._rng = Random(f"caller {number} {client._rng.random()}")
        self._markers = 0
        #: Marker and result of each create, and whether its name was generated.
        self._creates: list[tuple[str, Result, bool]] = []
        self._writes: list[tuple[str, Written]] = []
        self._deletions: list[tuple[Key, str, Written]] = []
        self._once_only: set[str] = set()
        self._arrived: dict[str, int] = {}

    async def run(self, until: float) -> None:
        deeds = (
            *[self._create_generated] * 5, self._create_named, *[self._patch] * 2,
            *[self._delete] * 3, *[self._batch] * 2, self._series,
        )  # fmt: skip
        while asyncio.get_running_loop().time() < until:
            await asyncio.sleep(self._rng.random() * 2)
            await self._rng.choice(deeds)()

    def see_arrival(self, arrival: Arrival) -> None:
        for marker in self._once_only:
            if marker.encode() in arrival.body:
                self._arrived[marker] = self._arrived.get(marker, 0) + 1

    # --- actions

    async def _create_generated(self) -> None:
        marker, op = self._new_object(generated=True)
        before = self._client.requests
        result = await self._result(op)
        self._note_create(marker, result, generated=True)
        if isinstance(result, ApiError) and result.code >= 500:
            sent = self._client.requests - before
            if sent < _MIN_ATTEMPTS and not isinstance(result, InsufficientStorage):
                self._complain(UNKNOWN, f"{marker} was given up after {sent} requests: {result}")

    async def _create_named(self) -> None:
        marker, op = self._new_object(generated=False)
        self._once_only.add(marker)
        self._note_create(marker, await self._result(op), generated=False)

    async def _patch(self) -> None:
        key = self._some_object()
        if key is not None:
            marker, op = self._new_patch(key)
            self._once_only.add(marker)
            result = await self._result(op)
            if isinstance(result, Written):
                self._writes.append((marker, result))

    async def _delete(self) -> None:
        key = self._some_object()
        if key is None:
            return
        uid = self._server.entries[key][-1].uid
        result = await self._result(Delete(key, uid=uid))
        if isinstance(result, Written):
            self._deletions.append((key, uid, result))

    async def _batch(self) -> None:
        """Create and patch different objects in one batch."""
        number = self._rng.randint(2, 4)
        made: list[tuple[str, Op]] = [self._new_object(generated=True) for _ in range(number)]
        if (key := self._some_object()) is not None:
            made.append(self._new_patch(key))
        results = await self._client.write_many([op for _, op in made])
        for (marker, op), result in zip(made, results, strict=True):
            self._trace.note(f"caller {self._number}: {marker}: {_text(result)}")
            if isinstance(result, Written) and marker.encode() not in result.document:
                self._complain(BATCH, f"{marker} has the answer to another write")
            if isinstance(op, Create):
                self._note_create(marker, result, generated=True)

    async def _series(self) -> None:
        """Patch one object several times: each patch overwrites the one before."""
        key = self._some_object()
        if key is None:
            return
        made = [self._new_patch(key) for _ in range(3)]
        results = await self._client.write_many([op for _, op in made])
        stored = [self._server.carrying(marker) for marker, _ in made]
        revisions = [
            min(entry.revision for entry in found.values())
            for found, result in zip(stored, results, strict=True)
            if found and isinstance(result, Written)
        ]
        if revisions != sorted(revisions):
            self._complain(ORDER, f"{key.name} was changed at revisions {revisions}")

    def _note_create(self, marker: str, result: Result, *, generated: bool) -> None:
        self._settled.add(marker)
        self._creates.append((marker, result, generated))

    async def _result(self, op: Op) -> Result:
        try:
            result: Result = await self._client.write(op)
        except ApiError as error:
            result = error
        kind = type(op).__name__
        self._trace.note(f"caller {self._number}: {kind} {self._markers}: {_text(result)}")
        return result

    def _new_object(self, *, generated: bool) -> tuple[str, Create]:
        marker = self._marker()
        name: dict[str, Any] = {"generateName": "made-"} if generated else {"name": marker}
        document = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {**name, "annotations": {_MARKER: marker}},
            "data": {"last": marker},
        }
        return marker, Create(CONFIG_MAPS, "default", msgspec.json.encode(document))

    def _new_patch(self, key: Key) -> tuple[str, Patch]:
        marker = self._marker()
        return marker, Patch(key, msgspec.json.encode({"data": {"last": marker}}), "merge")

    def _marker(self) -> str:
        self._markers += 1
        return f"m-{self._number}-{self._markers}-x"

    def _some_object(self) -> Key | None:
        there = [
            key
            for key, entries in self._server.entries.items()
            if key.resource == CONFIG_MAPS
            and key.name.startswith(("made-", "m-"))
            and not entries[-1].gone
            and _marker_of(entries[-1].document) in self._settled
        ]
        return self._rng.choice(there) if there else None

    # --- checks at the end

    def see_the_end(self) -> None:
        for marker, result, generated in self._creates:
            made = self._made(marker)
            if len(made) > 1:
                self._complain(ONCE, f"{marker} was created {len(made)} times")
            if isinstance(result, Written):
                self._see_created(marker, result, made)
            elif made and result.code < 500 and (generated or isinstance(result, AlreadyExists)):
                self._complain(ONCE, f"{marker} is there, and its create was refused: {result}")
        for marker, written in self._writes:
            found = self._server.carrying(marker)
            if not found:
                self._complain(REVISION, f"{marker} was never stored")
            elif written.revision < min(entry.revision for entry in found.values()):
                self._complain(REVISION, f"{marker} was answered with revision {written.revision}")
        for key, uid, written in self._deletions:
            gone = [one for one in self._server.entries[key] if one.gone and one.uid == uid]
            if gone and written.revision < gone[0].revision:
                text = f"the deletion of {key.name} was answered with {written.revision}"
                self._complain(REVISION, f"{text} and is of revision {gone[0].revision}")
        for marker, times in self._arrived.items():
            if times > 1:
                self._complain(RESENT, f"{marker} arrived {times} times")

    def _see_created(self, marker: str, result: Written, made: set[str]) -> None:
        if _marker_of(result.document) != marker:
            name = msgspec.json.decode(result.document)["metadata"]["name"]
            self._complain(OURS, f"{marker} was answered with {name}, which is not it")
        elif not made:
            self._complain(ONCE, f"{marker} was acknowledged and never stored")

    def _made(self, marker: str) -> set[str]:
        """Return the UIDs of the objects that one create made."""
        return {
            uid
            for uid, entry in self._server.carrying(marker).items()
            if _marker_of(entry.document) == marker
        }

    def _complain(self, check: str, text: str) -> None:
        self._problems.add(check, f"caller {self._number}: {text}")


def _marker_of(document: bytes) -> str:
    metadata = msgspec.json.decode(document)["metadata"]
    return str(metadata.get("annotations", {}).get(_MARKER, ""))


def _text(result: Result) -> str:
    return f"revision {result.revision}" if isinstance(result, Written) else repr(result)
