"""Informer: list and watch one resource, maintain its cache and call handlers with each change.

The list-watch state machine is in `watcher`; this module performs its steps.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Generic, TypeVar

from onejob.client.base import Client, Listing, Selection, WatchEvent
from onejob.informers.cache import Cache, Delta, IndexFunction
from onejob.informers.deferred import DeferredEvents
from onejob.informers.watcher import (
    Closed,
    Events,
    Failed,
    Gone,
    Listed,
    NeedsList,
    State,
    Watching,
    delay_before,
    step,
)
from onejob.objects.meta import Key
from onejob.wire.errors import ApiError, Expired, memory_errors_as_refusals

log = logging.getLogger(__name__)

V = TypeVar("V")

Handler = Callable[[Sequence[Delta[V]]], None]
RelistHandler = Callable[[Mapping[Key, V]], None]

#: Objects per page of a list.
PAGE = 1000
#: Events handled before yielding to the event loop; a few milliseconds of work.
_EVENTS_PER_TURN = 100
#: Seconds. A watch that ends sooner, and without an event, counts as failed.
_SHORT_WATCH_SECONDS = 1.0


class Informer(Generic[V]):
    """List-watch loop of one resource, with its cache.

    `read` decodes a document into a view and `key_of` returns the key of a view. `read_first`, if
    given, decodes the documents of the first list instead of `read`; it must return equal views but
    may take a shortcut. `derive`, if given, returns the view of a changed object that follows from
    its last view, or None if it has to be decoded.

    Guarantees:
        Handlers receive the changes of each object in order, after the cache contains them.
        Intermediate changes may be missing: a relist reports only the difference, and an event
        marked `quiet` is delayed, or dropped if a later one supersedes it (see `deferred`). Failed
        lists and watches are logged and retried with back-off.

    Concurrency:
        For one event loop. A relist updates the cache without yielding, so readers never see a
        mixture of old and new objects.
    """

    def __init__(
        self,
        client: Client,
        what: Selection,
        read: Callable[[bytes], V],
        key_of: Callable[[V], Key],
        *,
        keep: Callable[[V], bool] | None = None,
        index_entries: IndexFunction[V] | None = None,
        read_first: Callable[[bytes], V] | None = None,
        derive: Callable[[V, WatchEvent], V | None] | None = None,
        page: int = PAGE,
    ) -> None:
        self._client = client
        self._what = what
        self._read = read
        self._read_first = read_first or read
        self._derive = derive
        self._page_size = page
        self._key_of = key_of
        self._handlers: list[Handler[V]] = []
        self._relist_handlers: list[RelistHandler[V]] = []
        self._first_page: Listing | None = None
        self._synced = asyncio.Event()
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._deferred = DeferredEvents(self._deliver_deferred)
        self.cache: Cache[V] = Cache(keep=keep, index_entries=index_entries)

    def on_change(self, handler: Handler[V]) -> None:
        """Call `handler` with each batch of changes, after the cache contains them."""
        self._handlers.append(handler)

    def on_relist(self, handler: RelistHandler[V]) -> None:
        """Call `handler` with all objects of each list, after the list's changes.

        For handlers that remember objects the cache does not keep: a list reports no deletion of
        these.
        """
        self._relist_handlers.append(handler)

    async def begin(self) -> None:
        """Fetch the first page of the first list; call before `run`.

        The whole list has the revision of this page, so `run` reports every change made after
        `begin` returned. A failure is logged and left to `run`.
        """
        try:
            self._first_page = await self._page("")
        except (ApiError, OSError) as error:
            # `run` lists again until it succeeds.
            log.warning("%s: %s", self._what.resource, error)

    async def synced(self) -> None:
        """Wait for the first complete list."""
        await self._synced.wait()

    def caught_up_to(self, revision: int) -> bool:
        """Return whether the cache contains all changes up to `revision`, except deferred ones."""
        return self.cache.revision >= revision

    async def reached(self, revision: int) -> None:
        """Wait until the cache contains all changes up to `revision`, except deferred ones."""
        if self.cache.revision >= revision:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((revision, waiter))
        await waiter

    @property
    def has_deferred(self) -> bool:
        """Return whether deferred changes are missing from the cache."""
        return bool(self._deferred)

    async def flush_deferred(self) -> None:
        """Apply all deferred changes, for a caller that needs the newest version of each object."""
        while self._deferred:
            self._deliver_deferred()
            await asyncio.sleep(0)

    async def run(self) -> None:
        """List and watch until cancelled."""
        try:
            await self._list_and_watch()
        finally:
            # The handlers may no longer exist when deferred changes would be delivered.
            self._deferred.clear()

    async def _list_and_watch(self) -> None:
        """Keep the cache up to date until cancelled."""
        state: State = NeedsList()
        while True:
            delay = delay_before(state)
            if delay:
                await asyncio.sleep(delay)
            try:
                match state:
                    case NeedsList():
                        state = step(state, await self._list())
                    case Watching():
                        state = await self._watch(state)
            except (ApiError, OSError) as error:
                state = step(state, self._failure(error))

    def _failure(self, error: ApiError | OSError) -> Gone | Failed:
        """Log why a watch ended, and return how to go on."""
        if isinstance(error, Expired):
            log.info("%s: history was compacted, listing again", self._what.resource)
            return Gone()
        log.warning("%s: %s", self._what.resource, error)
        return Failed()

    async def _list(self) -> Listed:
        """Replace the cache's contents by a list; report objects missing from it as deleted."""
        present: dict[Key, V] = {}
        if self._synced.is_set():
            deltas, revision = await self._list_again(present)
        else:
            deltas, revision = [], await self._list_first(present)
        deltas.extend(
            self.cache.remove(key) for key in list(self.cache.keys()) if key not in present
        )
        self.cache.listed_revision = revision
        self._advance(revision)
        self._notify(deltas)
        for handler in self._relist_handlers:
            handler(present)
        self._synced.set()
        return Listed(revision)

    async def _list_first(self, present: dict[Key, V]) -> int:
        """Apply the first list in chunks, with yields to the event loop; return its revision.

        There may be a hundred thousand objects, from which only views are kept, and the same
        process serves requests meanwhile. A partly filled cache is safe here: no controller acts on
        it before `synced`.
        """
        page, self._first_page = self._first_page, None
        if page is None:
            page = await self._page("")
        while True:
            documents = page.documents
            for first in range(0, len(documents), _EVENTS_PER_TURN):
                if present:
                    await asyncio.sleep(0)
                listed = documents[first : first + _EVENTS_PER_TURN]
                self._notify(self._put_all(listed, self._read_first, present))
            if not page.continue_token:
                return page.revision
            page = await self._page(page.continue_token)

    async def _list_again(self, present: dict[Key, V]) -> tuple[list[Delta[V]], int]:
        """Apply a further list without yielding; return the changes and the list's revision.

        Unlike the first list, this one updates a cache in use: with a yield, readers would find
        some objects in their new state and others in their old one.
        """
        pages = [await self._page("")]
        while pages[-1].continue_token:
            pages.append(await self._page(pages[-1].continue_token))
        self._deferred.clear()
        documents = [document for page in pages for document in page.documents]
        return self._put_all(documents, self._read, present), pages[-1].revision

    async def _page(self, token: str) -> Listing:
        """Return a page of the list. Raises ApiError, OSError."""
        with memory_errors_as_refusals():
            return await self._client.list(self._what, limit=self._page_size, token=token)

    async def _batches(self, revision: int) -> AsyncGenerator[Sequence[WatchEvent], None]:
        """Yield the batches of a watch, and close it at the end."""
        with memory_errors_as_refusals():
            async with aclosing(self._client.watch(self._what, after=revision)) as batches:
                async for batch in batches:
                    yield batch

    def _put_all(
        self, documents: Sequence[bytes], read: Callable[[bytes], V], present: dict[Key, V]
    ) -> list[Delta[V]]:
        """Put the documents into the cache and into `present`; return the changes."""
        deltas: list[Delta[V]] = []
        for document in documents:
            view = read(document)
            key = self._key_of(view)
            present[key] = view
            deltas.append(self.cache.put(key, view, document))
        return deltas

    async def _watch(self, state: Watching) -> State:
        """Apply events until the watch ends or fails; either way, continue after the last event."""
        watching: State = state
        loop = asyncio.get_running_loop()
        begun, fruitless = loop.time(), True
        try:
            async with aclosing(self._batches(state.revision)) as events:
                async for batch in events:
                    for first in range(0, len(batch), _EVENTS_PER_TURN):
                        if first:
                            await asyncio.sleep(0)
                        self._apply(batch[first : first + _EVENTS_PER_TURN])
                    watching = step(watching, Events(batch))
                    fruitless = False
        except (ApiError, OSError) as error:
            return step(watching, self._failure(error))
        # Without the back-off of a failure, a server that ends every watch at once would be sent a
        # new watch request without a pause.
        at_once = fruitless and loop.time() - begun < _SHORT_WATCH_SECONDS
        return step(watching, Failed() if at_once else Closed())

    def _apply(self, batch: Sequence[WatchEvent]) -> None:
        """Apply a batch to the cache and notify the handlers; quiet events are deferred."""
        deferred = self._deferred
        for event in batch:
            if event.quiet:
                deferred.add(event)
            elif deferred.waiting and event.type != "BOOKMARK":
                deferred.supersede(event.key)
        changes = [event for event in batch if not event.quiet and event.type != "BOOKMARK"]
        deltas = self._applied(changes)
        if batch:
            self._advance(batch[-1].revision)
        self._notify(deltas)

    def _deliver_deferred(self) -> None:
        self._notify(self._applied(self._deferred.take(_EVENTS_PER_TURN)))

    def _applied(self, events: Iterable[WatchEvent]) -> Sequence[Delta[V]]:
        """Apply events to the cache and return the changes."""
        cache, read, derive = self.cache, self._read, self._derive
        deltas: list[Delta[V]] = []
        for event in events:
            key, view = event.key, None
            if event.finalizers is not None and derive is not None:
                last = cache.get(key)
                view = None if last is None else derive(last, event)
            if view is None:
                view = read(event.document)
            if event.type == "DELETED":
                deltas.append(cache.remove(key, view, event.document))
            else:
                deltas.append(cache.put(key, view, event.document, event.revision))
        return deltas

    def _advance(self, revision: int) -> None:
        """Raise the cache's revision, and wake those who waited for it."""
        self.cache.revision = max(self.cache.revision, revision)
        if self._waiters:
            due = [waiter for wanted, waiter in self._waiters if wanted <= revision]
            self._waiters = [pair for pair in self._waiters if pair[0] > revision]
            for waiter in due:
                if not waiter.done():
                    waiter.set_result(None)

    def _notify(self, deltas: Sequence[Delta[V]]) -> None:
        """Call all handlers with the changes, if there are any."""
        if deltas:
            for handler in self._handlers:
                handler(deltas)
