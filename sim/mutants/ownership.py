"""Mutants of the TTL controller, the garbage collector and the replacement of Pods."""

from collections.abc import Mapping

from onejob.controllers.garbage import GarbageCollector
from onejob.controllers.ttl import TtlController
from onejob.planning import ownership
from onejob.planning.job import scaling
from sim.mutants.planting import Plant, edit

TTL: Mapping[str, Plant] = {
    "expired object deleted without its UID": edit(TtlController._delete, (", uid=uid)", ")")),
    "time to live not read again": edit(TtlController.sync, ("if expiry.at > now:", "if False:")),
    "expired Job deleted before its Pods": edit(
        TtlController._delete, ('"Foreground"', '"Background"')
    ),
}
GARBAGE: Mapping[str, Plant] = {
    "verdict kept after the owners changed": edit(
        GarbageCollector._delete,
        ("if newest.owner_references != metadata.owner_references or not", "if not"),
    ),
    "garbage deleted without preconditions": edit(
        GarbageCollector._delete,
        (", uid=node.uid, resource_version=version)", ")"),
    ),
    "owner released before its blocking dependents": edit(
        GarbageCollector._release, ("if not blocking:", "if True:")
    ),
    "dependents not orphaned": edit(
        GarbageCollector._orphan_dependents,
        ("dependents = list(self._graph.dependents(owner.uid))", "dependents = []"),
    ),
    "absent owner judged by the cache": edit(
        GarbageCollector._owner_standing,
        (
            "owner = await self._read_live(Key(kind.storage, namespace, reference.name))",
            "known = self._graph.node(reference.uid)\n"
            "    owner = None if known is None else await self._read_live(known.key)",
        ),
    ),
    "namesake of the owner taken for the owner": edit(
        ownership.standing_of, ("owner is None or owner.uid != reference.uid", "owner is None")
    ),
}
REPLACEMENT: Mapping[str, Plant] = {
    "Pod replaced while it ends": edit(
        scaling.change_pods, ("if replaces_only_failed(job):", "if False:")
    ),
    "index replaced while its Pod ends": edit(
        scaling._indexes_to_start,
        ("busy = {completion_index(pod) for pod in awaited}", "busy: set[int | None] = set()"),
    ),
}
MUTANTS: Mapping[str, Plant] = {**TTL, **GARBAGE, **REPLACEMENT}
