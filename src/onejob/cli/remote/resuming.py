"""Watches that outlive connections, API servers and the history of the cluster."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from random import Random
from typing import Final

from onejob.client.answers import Unreachable, decoded, read_object
from onejob.client.base import EventType, Selection, WatchEvent
from onejob.client.http import HttpClient
from onejob.client.kubeconfig import Connection
from onejob.client.pacing import retry_delay
from onejob.objects.meta import JOBS, PODS, Key
from onejob.objects.pod import read_pod
from onejob.wire.errors import ApiError, Expired

_PAGE: Final = 500
#: Refusals tolerated in a row: an API server that has just started may not know its roles yet.
_MAX_REFUSALS: Final = 20
#: Failures in a row after which the current state is listed instead of continuing the watch. A
#: server restored from a backup waits in vain for a revision of the future.
_RELIST_AFTER: Final = 4


def is_passing(error: ApiError) -> bool:
    """Return whether the same request may succeed later."""
    return isinstance(error, Unreachable) or error.code == 429 or error.code >= 500


class ResumingClient(HttpClient):
    """Client whose watches never end.

    Guarantees: a watch continues after the last revision that it has seen. If the server has no
    history from there, the current state is listed instead and compared with what was delivered:
    deletions are reported with the last document. `after=0` begins with such a list.

    Errors: a watch raises only if the server refuses it `_MAX_REFUSALS` times in a row.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        rng: Random,
        notice: Callable[[str], None],
        observe: Callable[[WatchEvent], None],
    ) -> None:
        """`notice` is told about lost connections, `observe` about Pods before they are yielded."""
        super().__init__(connection, rng=rng)
        self._notice = notice
        self._observe = observe
        self._lost = False
        #: Number of lists that replaced a lost history, for statistics.
        self.relists = 0

    async def watch(
        self, what: Selection, *, after: int
    ) -> AsyncGenerator[Sequence[WatchEvent], None]:
        known: dict[Key, bytes] = {}
        revision, failures = after, 0
        while True:
            try:
                if revision == 0:
                    events, listed = await self._listed(what, known)
                    self._note_success()
                    yield self._noted(what, events, known)
                    revision = listed
                watched = super().watch(what, after=revision)
                async with aclosing(watched) as batches:
                    async for batch in batches:
                        failures = 0
                        self._note_success()
                        revision = batch[-1].revision or revision
                        events = [event for event in batch if event.type != "BOOKMARK"]
                        if events:
                            yield self._noted(what, events, known)
            except Expired:
                revision = 0
                self.relists += 1
            except ApiError as error:
                failures += 1
                if not is_passing(error) and failures >= _MAX_REFUSALS:
                    raise
                self._note_failure(error)
                if failures % _RELIST_AFTER == 0 and not isinstance(error, Unreachable):
                    revision = 0
            # A server that ends every watch at once must not be flooded.
            await asyncio.sleep(retry_delay(min(failures, 5), self._rng))

    async def _listed(
        self, what: Selection, known: dict[Key, bytes]
    ) -> tuple[list[WatchEvent], int]:
        """Return the changes since the last delivered state, and the revision of the list."""
        events: list[WatchEvent] = []
        present: set[Key] = set()
        token = ""
        while True:
            page = await self.list(what, limit=_PAGE, token=token)
            for document in page.documents:
                metadata = decoded(read_object, document).metadata
                key = Key(what.resource, metadata.namespace, metadata.name)
                present.add(key)
                kind: EventType = "MODIFIED" if key in known else "ADDED"
                events.append(WatchEvent(kind, key, page.revision, document))
            token = page.continue_token
            if not token:
                break
        gone = [(key, document) for key, document in known.items() if key not in present]
        deleted = [WatchEvent("DELETED", key, page.revision, document) for key, document in gone]
        return [*deleted, *events], page.revision

    def _noted(
        self, what: Selection, events: list[WatchEvent], known: dict[Key, bytes]
    ) -> list[WatchEvent]:
        """Record what is delivered. Only objects whose deletion matters later are kept."""
        if what.resource not in (JOBS, PODS):
            return events
        for event in events:
            ended = event.type == "DELETED"
            if what.resource == PODS:
                self._observe(event)
                ended = ended or read_pod(event.document).terminal
            if ended:
                known.pop(event.key, None)
            else:
                known[event.key] = event.document
        return events

    def _note_failure(self, error: ApiError) -> None:
        if not self._lost:
            self._lost = True
            self._notice(f"connection lost ({' '.join(error.message.split())}): retrying")

    def _note_success(self) -> None:
        if self._lost:
            self._lost = False
            self._notice("connected again")
