"""Target connection: one namespace of a remote cluster, its watches and its health."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from onejob.client.answers import Unreachable, Untrusted, decoded
from onejob.client.base import Client, Op, Selection, Written
from onejob.client.kubeconfig import Connection
from onejob.clock import Clock
from onejob.controllers.mirror.intake import Intake
from onejob.informers.cache import Delta
from onejob.informers.informer import Informer
from onejob.objects.meta import EVENTS, JOBS, PODS, Key, Meta, View
from onejob.planning.mirror import names
from onejob.wire.errors import ApiError, Conflict, Forbidden, NotFound, Unauthorized

log = logging.getLogger(__name__)

T = TypeVar("T")
Document = dict[str, Any]

#: Seconds. A request that takes longer counts as lost; its result is determined by reading.
_REQUEST_SECONDS: Final = 20.0
_FIRST_DELAY: Final = 1.0
_MAX_DELAY_SECONDS: Final = 60.0
_ENDED: Final = ("Succeeded", "Failed")
#: Objects per page of a list: with complete objects of ordinary size, a page is within `UNTRUSTED`.
_PAGE: Final = 100
_MAX_PODS: Final = 200_000
_KEPT_EVENTS: Final = 2000
_KEPT_EVENTS_OF_ONE: Final = 100
#: Seconds for which a watch may lack a change that a read has revealed, before it counts as dead.
DEAD_WATCH_SECONDS = 20.0


class RemoteObject(View, frozen=True):
    """View of a remote object: only the metadata is decoded at once."""

    metadata: Meta = Meta()


@dataclass(frozen=True, slots=True)
class Seen:
    """Complete remote object."""

    metadata: Meta
    document: bytes

    def decoded(self) -> Document:
        """Return the decoded document."""
        document: Document = msgspec.json.decode(self.document)
        return document


class _InvolvedObject(View, frozen=True):
    uid: str = ""


class _Event(View, frozen=True):
    involved_object: _InvolvedObject = _InvolvedObject()


class _Phase(View, frozen=True):
    phase: str = ""


class _Pod(View, frozen=True):
    status: _Phase = _Phase()


_read_object = msgspec.json.Decoder(RemoteObject).decode
_read_event = msgspec.json.Decoder(_Event).decode
_read_phase = msgspec.json.Decoder(_Pod).decode


def seen(document: bytes) -> Seen:
    """Decode the metadata of a remote object.

    Raises Unreachable if the document is not an object.
    """
    return Seen(decoded(_read_object, document).metadata, document)


def _whole(document: bytes) -> Document:
    """Return a remote document. Raises Unreachable if it is not an object with a UID."""
    if not seen(document).metadata.uid:
        raise Unreachable("unexpected response, not from an API server: the object has no UID")
    found: Document = msgspec.json.decode(document)
    return found


@dataclass(slots=True)
class Health:
    """Consecutive failed requests to a target; 0 attempts while it responds."""

    attempts: int = 0
    #: Monotonic times of the first failure and of the next attempt.
    since: float = 0.0
    next_try: float = 0.0
    reason: str = ""
    message: str = ""


def backoff(attempts: int) -> float:
    """Return the seconds to wait after the given number of failed attempts."""
    return float(min(_FIRST_DELAY * 2 ** min(attempts - 1, 10), _MAX_DELAY_SECONDS))


class Remote:
    """Connection to a target and namespace, open while Jobs use it; `close` ends its watches."""

    def __init__(
        self,
        target: str,
        namespace: str,
        connection: Connection,
        *,
        clock: Clock,
        connect: Callable[[Connection], Client],
        wake: Callable[[str], None],
        intake: Intake,
    ) -> None:
        """Connect to a target; `start` begins the watches.

        `wake` is called with the UID of a local Job when its copy, or one of the copy's Pods,
        changed.
        """
        self.target = target
        self.namespace = namespace
        self.server = connection.server
        self.health = Health()
        self._client = connect(connection)
        watched = intake.counted(self._client)
        self._stop_counting = watched.stop
        self._closed = False
        #: Newest version of a copy that the watch has delivered, and the monotonic time since which
        #: it has been the newest.
        self._behind: tuple[str, float] | None = None
        self._clock = clock
        self._wake = wake
        self._tasks: list[asyncio.Task[None]] = []
        self._origins: dict[str, str] = {}
        #: Events by the UID of the involved object, then by name; the newest last.
        self._events: dict[str, dict[str, Document]] = {}
        labels = names.ORIGIN
        self._jobs = Informer(
            watched, Selection(JOBS, namespace, labels), seen, _key_of(JOBS), page=_PAGE
        )
        self.pods = Informer(
            watched,
            Selection(PODS, namespace, labels),
            seen,
            _key_of(PODS),
            index_entries=lambda pod: (("origin", pod.metadata.labels.get(names.ORIGIN, "")),),
            page=_PAGE,
        )
        self._event_informer = Informer(
            self._client,
            Selection(EVENTS, namespace),
            seen,
            _key_of(EVENTS),
            keep=lambda _: False,
            page=_PAGE,
        )
        self._jobs.on_change(self._changed)
        self.pods.on_change(self._changed)
        self._event_informer.on_change(self._events_changed)

    def start(self) -> None:
        """Start the watches, after the first successful request."""
        if not self._tasks:
            informers = (self._jobs, self.pods, self._event_informer)
            self._tasks = [asyncio.create_task(informer.run()) for informer in informers]

    async def check_watch(self, copy: Document) -> None:
        """Restart the watches if the cached copy lags behind the version just read.

        It must have lagged for `DEAD_WATCH_SECONDS`. Connections can die silently.
        """
        metadata = copy["metadata"]
        cached = self._jobs.cache.get(Key(JOBS, metadata["namespace"], metadata["name"]))
        shown = cached.metadata.resource_version if cached is not None else ""
        moment = self._clock.monotonic()
        if shown == metadata["resourceVersion"] or self._behind is None or self._behind[0] != shown:
            self._behind = (shown, moment)
        elif moment - self._behind[1] >= DEAD_WATCH_SECONDS and self._tasks:
            log.warning("target %s: the watch timed out, restarting it", self.target)
            self._behind = None
            await self._stop_watching()
            self.start()

    async def _stop_watching(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def pods_synced(self) -> bool:
        """Return whether all remote Pods are cached.

        Before that, a Pod missing from the cache may exist.
        """
        return self.pods.cache.revision > 0

    async def close(self) -> None:
        """Stop all watches and close the connection."""
        self._closed = True
        await self._stop_watching()
        self._stop_counting()
        await self._client.close()

    # --- requests ---------------------------------------------------------------------------

    async def job(self, name: str) -> Document | None:
        """Return the remote Job of that name, read afresh; None if it does not exist."""
        try:
            return await self.get(Key(JOBS, self.namespace, name))
        except NotFound:
            return None

    async def get(self, key: Key) -> Document:
        """Return an object of the target. Raises ApiError; updates the target's health."""

        async def get() -> Document:
            return _whole(await self._client.get(key))

        return await self._asked(get)

    async def pods_of(self, origin: str) -> list[Seen]:
        """Return the Pods of all copies of a Job, read afresh."""
        what = Selection(PODS, self.namespace, f"{names.ORIGIN}={origin}")
        found: list[Seen] = []
        token = ""
        while True:
            page, token = await self._asked(partial(self._page, what, token))
            found += page
            if len(found) > _MAX_PODS:
                raise Unreachable(f"a Job has more than {_MAX_PODS} Pods")
            if not token:
                return found

    async def _page(self, what: Selection, token: str) -> tuple[list[Seen], str]:
        """Return a page of objects, and the token of the next."""
        page = await self._client.list(what, limit=_PAGE, token=token)
        return [seen(document) for document in page.documents], page.continue_token

    async def pods_left(self, origin: str) -> int:
        """Return how many Pods of all copies of a Job have not ended."""
        return sum(
            decoded(_read_phase, pod.document).status.phase not in _ENDED
            for pod in await self.pods_of(origin)
        )

    async def write(self, op: Op) -> Written:
        """Execute a write on the target. Raises ApiError; updates the target's health."""
        return await self._asked(lambda: self._client.write(op))

    async def _asked(self, answer: Callable[[], Awaitable[T]]) -> T:
        """Perform a request within the time limit and update the health.

        Only unreachability counts against the health: other error responses reset it. Raises
        ApiError.
        """
        if self._closed:
            raise Conflict(f"target {self.target} was replaced")
        try:
            async with asyncio.timeout(_REQUEST_SECONDS):
                result = await answer()
        except TimeoutError as slow:
            error = Unreachable(f"no response within {_REQUEST_SECONDS:g} s")
            self._record_failure(error)
            raise error from slow
        except ApiError as error:
            if is_out_of_reach(error):
                self._record_failure(error)
            else:
                self.health = Health()
            raise
        self.health = Health()
        return result

    def _record_failure(self, error: ApiError) -> None:
        """Record a failed attempt to reach the target, with back-off."""
        moment = self._clock.monotonic()
        health = self.health
        if not health.attempts:
            health = self.health = Health(since=moment)
        elif moment < health.next_try:
            # Concurrent failures of several Jobs count as one attempt.
            return
        health.attempts += 1
        health.next_try = moment + backoff(health.attempts)
        health.reason, health.message = describe(error, self.target, self.server)

    # --- watched objects --------------------------------------------------------------------

    def events_about(self, uid: str) -> list[Document]:
        """Return the Events about an object received since the last call."""
        return list(self._events.pop(uid, {}).values())

    def _changed(self, deltas: Sequence[Delta[Seen]]) -> None:
        """Wake the syncs of the Jobs whose remote objects have changed."""
        for delta in deltas:
            last = delta.new or delta.old
            if last is not None and (origin := last.metadata.labels.get(names.ORIGIN)):
                self._origins[last.metadata.uid] = origin
                if delta.new is None:
                    self._origins.pop(last.metadata.uid, None)
                self._wake(origin)

    def _events_changed(self, deltas: Sequence[Delta[Seen]]) -> None:
        """Collect the target's Events about Jobs and Pods."""
        for delta in deltas:
            if delta.new is None:
                continue
            try:
                uid = _read_event(delta.new.document).involved_object.uid
            except msgspec.DecodeError:
                continue
            about = self._events.setdefault(uid, {})
            if len(about) < _KEPT_EVENTS_OF_ONE:
                about[delta.new.metadata.name] = delta.new.decoded()
            if (origin := self._origins.get(uid)) is not None:
                self._wake(origin)
        while len(self._events) > _KEPT_EVENTS:
            del self._events[next(iter(self._events))]


def _key_of(resource: str) -> Callable[[Seen], Key]:
    return lambda one: Key(resource, one.metadata.namespace, one.metadata.name)


def is_out_of_reach(error: ApiError) -> bool:
    """Return whether the error leaves the result unknown and would also affect other requests."""
    return isinstance(error, Unreachable | Unauthorized) or error.code >= 500 or error.code == 429


def describe(error: ApiError, target: str, server: str) -> tuple[str, str]:
    """Return a condition reason and a message with the remedy."""
    text = error.message
    renew = f"onejob mirror add {target} --replace --kubeconfig FILE"
    if isinstance(error, Unauthorized):
        return "BadCredentials", f"{server} rejected the credentials: {text}; renew them: {renew}"
    if isinstance(error, Forbidden):
        return "Forbidden", f"{text}; grant the permission to the user of target {target} there"
    if isinstance(error, Untrusted):
        return "WrongCertificate", f"{text}; if {server} is the right server: {renew}"
    if isinstance(error, Unreachable):
        return "Unreachable", f"{server}: {text}"
    if is_out_of_reach(error):
        return "Unreachable", f"{server} responded with an error: {text}"
    return "Refused", f"{server} rejected the request: {text}"
