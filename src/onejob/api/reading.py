"""Lists and watches: selection, pagination, consistency and bookmarks."""

import asyncio
import base64
import binascii
import math
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any

import msgspec
from msgspec import Struct, field

from onejob.api.document_facts import DocumentFacts
from onejob.api.documents import at_revision
from onejob.api.shared_batches import SharedBatches
from onejob.api.strategy import Strategy
from onejob.api.yielding import PER_DOCUMENT_COST_BYTES, Turns
from onejob.objects.meta import Key
from onejob.store.base import Change, Compacted, Page, Store, TooFarBehind, Watch
from onejob.wire.errors import BadRequest, Expired, Timeout, expired
from onejob.wire.kinds import Kind
from onejob.wire.requests import (
    NOWHERE,
    EventType,
    ListOptions,
    ListOutcome,
    WatchEvent,
    WatchOptions,
)
from onejob.wire.selectors import (
    FieldSelector,
    SelectorError,
    parse_field_selector,
    parse_label_selector,
)

#: Number of objects processed before yielding to the event loop.
_CHUNK = 500

#: Interval of bookmarks for watches that request them.
BOOKMARK_SECONDS = 60.0

#: Digits of a 128-bit number.
_MAX_REVISION_DIGITS = 39

Matcher = Callable[[Key, bytes], bool]


class Reading(Struct, frozen=True):
    store: Store
    strategies: Mapping[str, Strategy]
    shared: SharedBatches = field(default_factory=SharedBatches)
    facts: DocumentFacts = field(default_factory=DocumentFacts)

    async def list(self, kind: Kind, namespace: str, options: ListOptions) -> ListOutcome:
        matches, only_name = self._matcher(
            kind, namespace, options.label_selector, options.field_selector
        )
        at, after = 0, None
        exact = options.resource_version_match == "Exact"
        if options.continue_token:
            if options.resource_version not in ("", "0"):
                raise BadRequest("specifying resource version is not allowed when using continue")
            at, after = self._page_start(kind, namespace, options.continue_token)
        else:
            self.require_reached(options.resource_version)
            if exact:
                at = _parse_revision(options.resource_version)
        if only_name is not None and namespace and not exact:
            return self._list_one(Key(kind.storage, namespace, only_name), matches)
        documents: list[bytes] = []
        remaining: int | None = None
        turns, test_cost = Turns(), _test_cost(options)
        while True:
            try:
                page = self.store.list(
                    kind.storage,
                    namespace,
                    limit=min(_CHUNK, options.limit or _CHUNK),
                    after=after,
                    at=at,
                )
            except Compacted as too_old:
                if not options.continue_token:
                    raise expired(too_old.revision, too_old.oldest) from too_old
                raise Expired(
                    "The provided continue parameter is too old to display a consistent list "
                    "result. You can start a new list without the continue parameter."
                ) from too_old
            at, after, remaining = page.revision, page.next_after, page.remaining
            for item in page.items:
                if matches is not None:
                    await turns.spend(len(item.value) + test_cost)
                    if not matches(item.key, item.value):
                        continue
                documents.append(item.value)
                if options.limit and len(documents) == options.limit:
                    if item is not page.items[-1] or after is not None:
                        after = item.key
                    break
            if after is None or (options.limit and len(documents) >= options.limit):
                break
            await asyncio.sleep(0)
        token = _write_token(at, after) if after is not None else ""
        return ListOutcome(
            tuple(documents),
            at,
            token,
            remaining if token and matches is None else None,
        )

    def _list_one(self, key: Key, matches: Matcher | None) -> ListOutcome:
        stored = self.store.get(key)
        found = stored is not None and (matches is None or matches(key, stored.value))
        documents = (stored.value,) if stored is not None and found else ()
        return ListOutcome(documents, self.store.revision)

    async def watch(
        self, kind: Kind, namespace: str, options: WatchOptions
    ) -> AsyncGenerator[Sequence[WatchEvent], None]:
        matches, only_name = self._matcher(
            kind, namespace, options.label_selector, options.field_selector
        )
        now = asyncio.get_running_loop().time()
        deadline = None if options.timeout_seconds is None else now + options.timeout_seconds
        revision, page = self._starting_point(kind, namespace, options)
        turns, test_cost = Turns(), _test_cost(options)
        while page is not None:
            events: list[WatchEvent] = []
            for item in page.items:
                if matches is not None:
                    await turns.spend(len(item.value) + test_cost)
                    if not matches(item.key, item.value):
                        continue
                events.append(WatchEvent("ADDED", item.key, item.revision, item.value))
            if events:
                yield events
            # A watch may be open for days and must not hold its initial events.
            del events
            # Read the next page only when it is requested, so that nothing is buffered for a client
            # that does not read.
            page = await self._page_after(page, kind, namespace)
        if options.send_initial_events:
            yield [_bookmark(kind, revision, initial_end=True)]
        try:
            changes = self.store.watch(kind.storage, namespace, after=revision)
        except Compacted as too_old:
            raise expired(too_old.revision, too_old.oldest) from too_old
        async with aclosing(
            _live_events(
                changes,
                kind,
                matches,
                only_name,
                options.allow_bookmarks,
                deadline,
                self.store,
                self.shared,
            )
        ) as live:
            async for changed in live:
                yield changed

    def _starting_point(
        self, kind: Kind, namespace: str, options: WatchOptions
    ) -> tuple[int, Page | None]:
        """Return the revision to watch from, and the first page of initial events (None for
        none)."""
        # A revision that was never reached belongs to another store: a watch from there would miss
        # the events of this one.
        self.require_reached(options.resource_version)
        from_now_on = options.resource_version in ("", "0")
        if not from_now_on and not options.send_initial_events:
            return _parse_revision(options.resource_version), None
        if options.send_initial_events is False:
            return self.store.revision, None
        page = self.store.list(kind.storage, namespace, limit=_CHUNK)
        return page.revision, page

    async def _page_after(self, page: Page, kind: Kind, namespace: str) -> Page | None:
        """Return the next page at the same revision, after a yield to the event loop; None at the
        end.

        Raises Expired if the revision has been compacted.
        """
        if page.next_after is None:
            return None
        await asyncio.sleep(0)
        try:
            return self.store.list(
                kind.storage, namespace, limit=_CHUNK, after=page.next_after, at=page.revision
            )
        except Compacted as too_old:
            raise expired(too_old.revision, too_old.oldest) from too_old

    def _page_start(self, kind: Kind, namespace: str, token: str) -> tuple[int, Key]:
        """Return the position at which a list continues.

        Raises BadRequest for a token that was not issued for it.
        """
        at, after = _read_token(token)
        same_list = after.resource == kind.storage and namespace in ("", after.namespace)
        if not (same_list and 0 < at <= self.store.revision):
            raise _bad_token(token)
        return at, after

    def require_reached(self, resource_version: str) -> None:
        """Raise Timeout if `resource_version` (not older than) is in the future."""
        if resource_version in ("", "0"):
            return
        asked = _parse_revision(resource_version)
        if asked > self.store.revision:
            raise Timeout(
                f"Too large resource version: {asked}, current: {self.store.revision}",
                details={
                    "causes": [
                        {
                            "reason": "ResourceVersionTooLarge",
                            "message": "Too large resource version",
                        }
                    ]
                },
                retry_after_seconds=1,
            )

    def _matcher(
        self, kind: Kind, namespace: str, labels: str, fields: str
    ) -> tuple[Matcher | None, str | None]:
        """Return a predicate on documents, and the single name that can match.

        The predicate is None if all documents match; the name is None if any can match. Raises
        BadRequest for invalid selectors.
        """
        try:
            label_selector = parse_label_selector(labels) if labels else None
            field_selector = parse_field_selector(fields) if fields else None
        except SelectorError as error:
            raise BadRequest(str(error)) from error
        field_test = None
        only_name = None
        if field_selector is not None:
            strategy = self.strategies[kind.strategy]
            for term in field_selector.terms:
                problem = strategy.field_label_error(term.field)
                if problem is not None:
                    raise BadRequest(problem)
                if term.field == "metadata.name" and not term.negated:
                    only_name = term.value
            field_test = _field_test(field_selector, strategy, self.facts)
        label_test = label_selector.matches if label_selector is not None else None
        if label_test is None and field_test is None:
            return None, None
        read_labels = self.facts.labels

        def matches(key: Key, document: bytes) -> bool:
            if only_name is not None and key.name != only_name:
                return False
            if label_test is not None and not label_test(read_labels(document)):
                return False
            return field_test is None or field_test(key, document)

        return matches, only_name


def _test_cost(options: ListOptions | WatchOptions) -> int:
    """Return the fixed cost of testing one document, in bytes."""
    # A term of ten characters takes as long as a hundred bytes of a document.
    return PER_DOCUMENT_COST_BYTES + 10 * (
        len(options.label_selector) + len(options.field_selector)
    )


def _field_test(selector: FieldSelector, strategy: Strategy, facts: DocumentFacts) -> Matcher:
    """Return a test of documents by a field selector."""
    only_metadata = all(term.field.startswith("metadata.") for term in selector.terms)

    def matches(key: Key, document: bytes) -> bool:
        values = {"metadata.name": key.name, "metadata.namespace": key.namespace}
        if not only_metadata:
            values.update(facts.fields(strategy, document))
        return selector.matches(values)

    return matches


async def _live_events(
    changes: Watch,
    kind: Kind,
    matches: Matcher | None,
    only_name: str | None,
    bookmarks: bool,
    deadline: float | None,
    store: Store,
    shared: SharedBatches,
) -> AsyncGenerator[Sequence[WatchEvent], None]:
    """Yield batches of watch events as they are committed."""
    loop = asyncio.get_running_loop()
    deadline = math.inf if deadline is None else deadline
    next_bookmark = loop.time() + BOOKMARK_SECONDS if bookmarks else math.inf
    # One timer for many batches: a timeout around each would cost more than the batch.
    alarm: asyncio.TimerHandle | None = None
    try:
        while True:
            if alarm is None and (wake_at := min(deadline, next_bookmark)) < math.inf:
                alarm = loop.call_at(wake_at, changes.nudge)
            try:
                batch = await anext(changes)
            except StopAsyncIteration:
                return
            if (not batch and deadline <= next_bookmark) or loop.time() >= deadline:
                return
            if not batch:
                # All durable changes have been sent.
                alarm, next_bookmark = None, loop.time() + BOOKMARK_SECONDS
                yield [_bookmark(kind, store.revision)]
                continue
            for chunk in _chunks(batch):
                if matches is not None:
                    events = _events(chunk, matches, only_name)
                elif chunk is batch:
                    events = shared.of(batch, _all_events)
                else:
                    events = _all_events(chunk)
                if events:
                    yield events
    except TooFarBehind as slow:
        raise Expired(f"the watch did not keep up: {slow}") from slow
    finally:
        if alarm is not None:
            alarm.cancel()
        changes.close()


def _chunks(batch: Sequence[Change]) -> Iterator[Sequence[Change]]:
    """Yield slices of a batch; a short batch is yielded itself, because other watches share it."""
    if len(batch) <= _CHUNK:
        yield batch
        return
    for start in range(0, len(batch), _CHUNK):
        yield batch[start : start + _CHUNK]


def _all_events(batch: Sequence[Change]) -> Sequence[WatchEvent]:
    # Without selectors, each creation and update is one event: the most frequent case.
    events = [
        WatchEvent(
            "ADDED" if change.previous is None else "MODIFIED",
            change.key,
            change.revision,
            change.value,
            change.quiet,
            None if change.finalizers is None else (change.finalizers, change.previous_revision),
        )
        for change in batch
        if change.value is not None
    ]
    return events if len(events) == len(batch) else _events(batch, None, None)


def _events(
    batch: Sequence[Change], matches: Matcher | None, only_name: str | None
) -> Sequence[WatchEvent]:
    """Return the events of a batch for a watch with this selection."""
    return [
        event
        for change in batch
        if only_name is None or change.key.name == only_name
        for event in _served(change, matches)
    ]


def _served(change: Change, matches: Matcher | None) -> Sequence[WatchEvent]:
    """Return the events of one change for a watcher with selectors: none or one."""
    before = change.previous is not None and (
        matches is None or matches(change.key, change.previous)
    )
    after = change.value is not None and (matches is None or matches(change.key, change.value))
    if after:
        assert change.value is not None
        seen: EventType = "MODIFIED" if before else "ADDED"
        quiet = change.quiet and before
        return (WatchEvent(seen, change.key, change.revision, change.value, quiet),)
    if before:
        assert change.previous is not None
        # Deleted or no longer matching: send the last matching state at the revision of the change.
        last = at_revision(change.previous, change.previous_revision, change.revision)
        return (WatchEvent("DELETED", change.key, change.revision, last),)
    return ()


def _bookmark(kind: Kind, revision: int, *, initial_end: bool = False) -> WatchEvent:
    """Return a bookmark, for which the object contains only the revision."""
    metadata: dict[str, Any] = {"resourceVersion": str(revision), "creationTimestamp": None}
    if initial_end:
        metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
    document = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata}
    return WatchEvent("BOOKMARK", NOWHERE, revision, msgspec.json.encode(document))


def _parse_revision(text: str) -> int:
    """Return a resourceVersion as a number. Raises BadRequest."""
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_REVISION_DIGITS):
        raise BadRequest(f'Invalid value: "{text}": resourceVersion must be a decimal number')
    return int(text)


def _write_token(revision: int, after: Key) -> str:
    raw = msgspec.json.encode([revision, after.resource, after.namespace, after.name])
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _read_token(token: str) -> tuple[int, Key]:
    """Return revision and last key in a continue token. Raises the error of a bad token."""
    with suppress(msgspec.DecodeError, binascii.Error, ValueError):
        padded = token + "=" * (-len(token) % 4)
        revision, resource, namespace, name = msgspec.json.decode(
            base64.urlsafe_b64decode(padded.encode()), type=tuple[int, str, str, str]
        )
        return revision, Key(resource, namespace, name)
    raise _bad_token(token)


def _bad_token(token: str) -> BadRequest:
    return BadRequest(f"continue key is not valid: {token!r}")
