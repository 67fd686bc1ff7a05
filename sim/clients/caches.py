"""Invariants of an informer: its cache, its indexes and the events delivered to its handlers."""

import asyncio
from collections.abc import Mapping, Sequence

from onejob.informers.cache import Delta
from onejob.informers.informer import Informer
from onejob.informers.shared import _index_pod, _may_need_action
from onejob.objects.meta import PODS, Key
from onejob.objects.pod import Pod, read_pod
from sim.checks.problems import Problems
from sim.clients.log import ServerLog

BACK = "no cache goes back"
GAPS = "a cache has every change up to its revision"
TOLD = "handlers hear of every change"
INDEX = "indexes have what the cache has"


class CacheCheck:
    """Check of one informer of Pods."""

    def __init__(
        self, name: str, informer: Informer[Pod], server: ServerLog, problems: Problems
    ) -> None:
        self._name = name
        self.informer = informer
        self._server = server
        self._problems = problems
        #: UID and revision of the objects announced to handlers, cached or not.
        self._known: dict[Key, tuple[str, int]] = {}
        self._deleted: set[str] = set()
        self._ever_indexed: set[tuple[str, object]] = set()
        informer.on_change(self._changed)
        informer.on_relist(self._relisted)

    def _changed(self, deltas: Sequence[Delta[Pod]]) -> None:
        for delta in deltas:
            if delta.new is None:
                self._gone(delta)
            else:
                self._seen(delta.key, delta.new)

    def _seen(self, key: Key, pod: Pod) -> None:
        uid, revision = pod.metadata.uid, pod.metadata.revision
        known = self._known.get(key)
        if uid in self._deleted:
            self._complain(BACK, f"{key.name} ({uid[:8]}) is back after its deletion")
        if known is not None and known[0] == uid and revision < known[1]:
            self._complain(BACK, f"{key.name} goes from revision {known[1]} back to {revision}")
        self._known[key] = uid, revision
        self._ever_indexed.update(_index_pod(pod))

    def _gone(self, delta: Delta[Pod]) -> None:
        known = self._known.pop(delta.key, None)
        if known is not None:
            self._deleted.add(known[0])

    def _relisted(self, present: Mapping[Key, Pod]) -> None:
        for key in self._known.keys() - present.keys():
            # Handlers learn about deletions of objects that the cache does not keep only from a
            # relist.
            if self._kept(key):
                self._complain(TOLD, f"the deletion of {key.name} in a gap was not announced")
            self._deleted.add(self._known.pop(key)[0])

    def _kept(self, key: Key) -> bool:
        entry = self._server.last(key, self._known[key][1])
        return entry is not None and _may_need_action(read_pod(entry.document))

    def look(self) -> None:
        """Compare the cache with the server's state at the cache's revision."""
        cache, revision = self.informer.cache, self.informer.cache.revision
        if not revision or revision > self._server.seen[PODS]:
            return
        for key, entries in self._server.entries.items():
            if key.resource != PODS:
                continue
            loud = [one for one in entries if one.revision <= revision and not one.quiet]
            if not loud:
                continue
            last, cached = loud[-1], cache.get(key)
            if last.gone:
                if cached is not None and cached.metadata.revision <= last.revision:
                    self._complain(GAPS, f"{key.name} is gone since {last.revision} and cached")
            elif cached is None:
                newest = self._server.last(key, revision)
                if newest is last and _may_need_action(read_pod(last.document)):
                    self._complain(GAPS, f"{key.name} of revision {last.revision} is not cached")
            elif cached.metadata.revision < last.revision:
                self._complain(GAPS, f"{key.name} is cached as before revision {last.revision}")
        self._look_at_indexes()

    def _look_at_indexes(self) -> None:
        cache = self.informer.cache
        cached = {key: cache.get(key) for key in cache.keys()}  # noqa: SIM118
        for index, value in self._ever_indexed:
            for pod in cache.find(index, value):
                if cached.get(pod.key) is not pod:
                    self._complain(INDEX, f"{pod.key.name} is found by {index} as it was")
        for pod in filter(None, cached.values()):
            for index, value in _index_pod(pod):
                if pod not in list(cache.find(index, value)):
                    self._complain(INDEX, f"{pod.key.name} is not found by {index}")

    async def expect(self, key: Key, revision: int) -> None:
        """Wait for our own write as controllers do, then check that the cache has it."""
        await self.informer.reached(revision)
        cached = self.informer.cache.get(key)
        last = self._server.last(key, max(revision, self.informer.cache.revision))
        if last is None or last.gone or last.quiet:
            return
        if cached is None and not _may_need_action(read_pod(last.document)):
            return
        if cached is None or cached.metadata.revision < revision:
            self._complain(GAPS, f"{key.name} is not there as of {revision}, as was said")

    def see_the_end(self) -> None:
        self.look()
        newest = max(self._server.seen.values(), default=0)
        if self.informer.cache.revision < self._server.seen[PODS]:
            behind = f"revision {self.informer.cache.revision} of {newest}"
            self._complain("convergence", f"the cache is at {behind}")
        listed = {
            key
            for key, entries in self._server.entries.items()
            if key.resource == PODS and not entries[-1].gone
        }
        for key in self._known.keys() - listed:
            self._complain(TOLD, f"the deletion of {key.name} was never announced")

    def _complain(self, check: str, text: str) -> None:
        self._problems.add(check, f"{self._name}: {text}")


async def look_often(checks: Sequence[CacheCheck], until: float) -> None:
    """Compare all caches with the server four times a second, until loop time `until`."""
    while asyncio.get_running_loop().time() < until:
        await asyncio.sleep(0.25)
        for check in checks:
            check.look()
