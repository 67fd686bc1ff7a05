"""Model-based test of the store: random histories with crashes, full disks, compaction.

The model is a list of every durable change, in order. A store is correct if each result follows
from that list: gets and lists from its end or from an earlier point, watches from any part of it.
"""

import asyncio
import tempfile
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from onejob.objects.meta import Key
from onejob.store.base import (
    Change,
    CommitFailed,
    Compacted,
    RevisionMismatch,
    TooFarBehind,
)
from onejob.store.fanout import LogWatch
from onejob.store.limits import Limits
from onejob.store.log import LogStore
from onejob.store.writer import Done, Job
from onejob.virtual_time import VirtualTimeLoop, virtual_clock
from tests.memory_directory import memory_directory

T = TypeVar("T")

LIMITS = Limits(
    history_seconds=100,
    history_changes=24,
    recent_changes=4,
    watch_changes=6,
    commit_changes=3,
    checkpoint_bytes=40_000,
    spare_pages=1,
)

KEYS = st.builds(
    Key, st.sampled_from(["pods", "jobs"]), st.sampled_from(["a", "b"]), st.sampled_from("xyz")
)


@dataclass(frozen=True, slots=True)
class Event:
    revision: int
    key: Key
    value: bytes | None
    at: float


@dataclass(slots=True)
class Model:
    """All durable changes."""

    log: list[Event] = field(default_factory=list)

    def state(self, at: int) -> dict[Key, Event]:
        state: dict[Key, Event] = {}
        for event in self.log:
            if event.revision > at:
                break
            if event.value is None:
                del state[event.key]
            else:
                state[event.key] = event
        return state

    def listing(self, at: int, resource: str, namespace: str) -> list[tuple[Key, int, bytes]]:
        return sorted(
            (key, event.revision, event.value or b"")
            for key, event in self.state(at).items()
            if key.resource == resource and namespace in ("", key.namespace)
        )

    def changes(self, after: int, resource: str, namespace: str) -> list[tuple[Any, ...]]:
        """Return changes as a watch shows them: key, revision, value, and previous value."""
        before = self.state(after)
        seen: list[tuple[Any, ...]] = []
        for event in self.log:
            if event.revision <= after:
                continue
            previous = before.pop(event.key, None)
            if event.value is not None:
                before[event.key] = event
            if event.key.resource == resource and namespace in ("", event.key.namespace):
                seen.append(
                    (
                        event.key,
                        event.revision,
                        event.value,
                        previous.value if previous else None,
                        previous.revision if previous else 0,
                    )
                )
        return seen


@dataclass(slots=True)
class Watcher:
    watch: LogWatch
    resource: str
    namespace: str
    after: int


@dataclass(slots=True)
class PagedList:
    resource: str
    namespace: str
    at: int
    after: Key | None
    expected: list[tuple[Key, int, bytes]]


class SteppedCommitter:
    """Committer that runs each job on command, or reports a full disk, or dies half-way."""

    def __init__(self) -> None:
        self._jobs: deque[tuple[Job, Done]] = deque()

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def submit(self, job: Job, done: Done) -> None:
        self._jobs.append((job, done))

    def step(self) -> None:
        job, done = self._jobs.popleft()
        job()
        done(None)

    def find_the_disk_full(self) -> None:
        _, done = self._jobs.popleft()
        done(CommitFailed("full"))

    def write_without_telling(self) -> None:
        job, _ = self._jobs.popleft()
        job()

    def stop(self) -> None:
        while self._jobs:
            self.step()


class StoreMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.directory = tempfile.TemporaryDirectory(dir=memory_directory())
        self.path = Path(self.directory.name) / "db"
        self.runner = asyncio.Runner(loop_factory=VirtualTimeLoop)
        self.model = Model()
        self.staged: list[Event] = []
        self.highest = 1
        self.watchers: list[Watcher] = []
        self.lists: list[PagedList] = []
        self.compacted = 0
        #: Compacted before the store was opened.
        self.inherited = 0
        self.opened_at = 0.0
        self.run(self.open())

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(main)

    async def open(self) -> None:
        self.committer = SteppedCommitter()
        self.store = await LogStore.open(
            self.path, clock=virtual_clock(), committer=self.committer, limits=LIMITS
        )
        self.opened_at = self.now()

    def now(self) -> float:
        return self.runner.get_loop().time()

    def newest(self, key: Key) -> int:
        for event in reversed(self.staged):
            if event.key == key:
                return event.revision if event.value is not None else 0
        durable = self.model.state(self.highest).get(key)
        return durable.revision if durable is not None else 0

    # ---- writing

    @rule(key=KEYS, size=st.sampled_from([1, 10, 3_000]), cold=st.booleans())
    def put(self, key: Key, size: int, cold: bool) -> None:
        expected = self.newest(key)

        async def stage() -> None:
            stored = self.store.stage(
                key, expected, lambda revision: b"%d." % revision * size, cold=cold
            )
            assert stored is not None
            self.note_staged(Event(stored.revision, key, stored.value, 0))

        self.run(stage())

    @rule(key=KEYS)
    def delete(self, key: Key) -> None:
        expected = self.newest(key)

        async def stage() -> None:
            if expected == 0:
                return
            assert self.store.stage(key, expected, None) is None
            self.note_staged(Event(self.store.staged_revision, key, None, 0))

        self.run(stage())

    def note_staged(self, event: Event) -> None:
        assert event.revision > self.highest, "revisions only grow"
        self.highest = event.revision
        self.staged.append(event)

    @rule(key=KEYS, wrong=st.integers(1, 5), deletes=st.booleans())
    def write_with_a_wrong_revision(self, key: Key, wrong: int, deletes: bool) -> None:
        async def stage() -> None:
            with pytest.raises(RevisionMismatch) as refused:
                self.store.stage(
                    key, self.newest(key) + wrong, None if deletes else lambda _: b"never"
                )
            assert refused.value.actual == self.newest(key)

        self.run(stage())

    def note_progress(self) -> None:
        """Move the staged writes that are now durable into the model."""
        while self.staged and self.staged[0].revision <= self.store.revision:
            event = self.staged.pop(0)
            self.model.log.append(Event(event.revision, event.key, event.value, self.now()))

    @rule()
    def let_the_disk_work_a_bit(self) -> None:
        self.run(asyncio.sleep(0))
        if self.committer:
            self.committer.step()
            self.note_progress()

    @rule()
    def commit(self) -> None:
        self.run(asyncio.sleep(0))
        while self.committer:
            self.committer.step()
            self.run(asyncio.sleep(0))
        self.note_progress()
        assert not self.staged

    @rule()
    def find_the_disk_full(self) -> None:
        self.run(asyncio.sleep(0))
        if not self.committer:
            return
        self.committer.find_the_disk_full()
        if self.staged and self.store.newest(self.staged[-1].key) == self.store.get(
            self.staged[-1].key
        ):
            for event in self.staged:
                with pytest.raises(CommitFailed):
                    self.run(self.store.durable(event.revision))
            self.staged = []

    @rule(seconds=st.sampled_from([0.5, 30.0, 99.0, 101.0]))
    def let_time_pass(self, seconds: float) -> None:
        self.run(asyncio.sleep(seconds))

    # ---- restarting

    @rule()
    def restart(self) -> None:
        self.commit()
        self.run(self.store.close())
        self.after_restart()

    @rule(written=st.booleans())
    def crash(self, written: bool) -> None:
        self.run(asyncio.sleep(0))
        if written and self.committer:
            self.committer.write_without_telling()
        self.store._upkeep.stop()
        self.store._database.close(tidy=False)
        self.after_restart()

    def after_restart(self) -> None:
        self.run(self.open())
        self.watchers = []
        self.note_progress()
        durable = self.model.log[-1].revision if self.model.log else 1
        assert self.store.revision == self.store.staged_revision == durable
        self.staged = []
        # Unreported compactions and revisions are lost.
        self.highest = durable
        self.compacted = self.inherited = self.store.compacted

    # ---- reading

    @invariant()
    def reads_agree(self) -> None:
        if not hasattr(self, "store"):
            return
        durable = self.store.revision
        state = self.model.state(durable)
        for resource in ("pods", "jobs"):
            page = self.store.list(resource)
            found = [(stored.key, stored.revision, stored.value) for stored in page.items]
            assert found == self.model.listing(durable, resource, "")
            assert self.store.count(resource) == len(found)
        for key, event in state.items():
            stored = self.store.get(key)
            assert stored is not None
            assert (stored.revision, stored.value) == (event.revision, event.value)

    @invariant()
    def compaction_only_takes_what_is_old_or_too_much(self) -> None:
        if not hasattr(self, "store"):
            return
        compacted = self.store.compacted
        assert compacted >= self.compacted, "compaction went back"
        self.compacted = compacted
        gone = [event for event in self.model.log if event.revision <= compacted]
        if not gone:
            return
        dead = 0
        for resource in ("pods", "jobs"):
            for _, _, value, previous, _ in self.model.changes(compacted, resource, ""):
                dead += (previous is not None) + (value is None)
        # History is compacted in pieces of up to one commit: three deletions, two dead rows each.
        too_much = dead >= LIMITS.history_changes - 6
        too_old = self.now() - max(gone[-1].at, self.opened_at) >= LIMITS.history_seconds
        assert too_old or too_much or self.inherited >= compacted

    # ---- watching

    @rule(
        resource=st.sampled_from(["pods", "jobs"]),
        namespace=st.sampled_from(["", "a"]),
        back=st.integers(0, 30),
    )
    def watch(self, resource: str, namespace: str, back: int) -> None:
        after = max(0, self.store.revision - back)

        async def start() -> None:
            if after < self.store.compacted:
                with pytest.raises(Compacted):
                    self.store.watch(resource, namespace, after=after)
                return
            watch = self.store.watch(resource, namespace, after=after)
            self.watchers.append(Watcher(watch, resource, namespace, after))

        self.run(start())

    @precondition(lambda self: self.watchers)
    @rule(which=st.integers(0, 10))
    def follow_a_watch(self, which: int) -> None:
        watcher = self.watchers[which % len(self.watchers)]

        async def changes() -> list[Change]:
            seen: list[Change] = []
            try:
                while True:
                    seen += await asyncio.wait_for(anext(watcher.watch), 0.01)
            except TimeoutError:
                return seen

        expected = self.model.changes(watcher.after, watcher.resource, watcher.namespace)
        try:
            seen = self.run(changes())
        except TooFarBehind:
            slow = len(expected) > LIMITS.watch_changes
            assert slow or watcher.after < self.store.compacted, "dropped without a reason"
            self.watchers.remove(watcher)
            return
        shown = [(c.key, c.revision, c.value, c.previous, c.previous_revision) for c in seen]
        assert shown == expected, "lost, doubled or out of order"
        watcher.after = self.store.revision

    # ---- paging

    @rule(resource=st.sampled_from(["pods", "jobs"]), namespace=st.sampled_from(["", "b"]))
    def begin_a_paged_list(self, resource: str, namespace: str) -> None:
        page = self.store.list(resource, namespace, limit=1)
        expected = self.model.listing(page.revision, resource, namespace)
        assert [(s.key, s.revision, s.value) for s in page.items] == expected[:1]
        assert (page.next_after is None) == (len(expected) <= 1)
        if page.next_after is not None:
            assert page.remaining == len(expected) - 1
            self.lists.append(
                PagedList(resource, namespace, page.revision, page.next_after, expected[1:])
            )

    @precondition(lambda self: self.lists)
    @rule(which=st.integers(0, 10), limit=st.integers(0, 3))
    def continue_a_paged_list(self, which: int, limit: int) -> None:
        paged = self.lists.pop(which % len(self.lists))
        more: Any = {"limit": limit, "after": paged.after, "at": paged.at}
        if paged.at < self.store.compacted:
            with pytest.raises(Compacted):
                self.store.list(paged.resource, paged.namespace, **more)
            return
        page = self.store.list(paged.resource, paged.namespace, **more)
        assert page.revision == paged.at
        found = [(s.key, s.revision, s.value) for s in page.items]
        assert found == paged.expected[: limit or None]
        paged.expected = paged.expected[len(found) :]
        assert (page.next_after is None) == (not paged.expected)
        if page.next_after is not None:
            paged.after = page.next_after
            self.lists.append(paged)

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.commit()
            self.run(self.store.close())
            self.runner.close()
            self.directory.cleanup()


TestStore = StoreMachine.TestCase
TestStore.settings = settings(
    max_examples=60,
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
