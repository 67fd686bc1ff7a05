"""Mutants of informers: gaps between lists and watches, deferred changes, caches."""

from collections.abc import Mapping

from onejob.informers import watcher
from onejob.informers.cache import Cache
from onejob.informers.deferred import DeferredEvents
from onejob.informers.informer import Informer
from sim.mutants.planting import Plant, edit

MUTANTS: Mapping[str, Plant] = {
    "deferred changes kept by a relist": edit(
        Informer._list_again, ("self._deferred.clear()", "pass")
    ),
    "list after a gap not applied": edit(
        Informer._list,
        (
            "deltas, revision = await self._list_again(present)",
            'deltas, revision = [], (await self._page("")).revision\n'
            "        present.update((key, self.cache.get(key)) for key in self.cache.keys())",
        ),
    ),
    "deletions in a gap not announced": edit(Informer._list, ("deltas.extend(", "list(")),
    "watch resumed from the revision of the list": edit(
        watcher.step,
        ("Watching(batch[-1].revision if batch else state.revision)", "Watching(state.revision)"),
    ),
    "watch resumed one revision too late": edit(
        watcher.step,
        (
            "case Closed():\n            return state",
            "case Closed():\n            return Watching(state.revision + 1)",
        ),
    ),
    "deferred change delivered after its successor": edit(
        DeferredEvents.supersede, ("self._events.pop(key, None)", "pass")
    ),
    "watch begun after the revision of the first list": edit(
        Informer._list_first, ("return page.revision", 'return (await self._page("")).revision')
    ),
    "relist ended after its first page": edit(
        Informer._list_again, ("while pages[-1].continue_token:", "while False:")
    ),
    "dropped views kept in the indexes": edit(
        Cache.put,
        ("self._remove_from_indexes(key, old)\n        del", "del"),
    ),
    "waiters released before their revision": edit(
        Informer._advance, ("if wanted <= revision]", "if wanted <= revision + 3]")
    ),
}
