"""Owner graph: candidates for garbage collection, and the decision on each."""

from datetime import UTC, datetime

import msgspec
import pytest

from onejob.objects.meta import Key, Meta, OwnerReference
from onejob.planning.ownership import (
    DeleteObject,
    DropReferences,
    Examine,
    ForeignOwner,
    Node,
    Orphan,
    OwnerGraph,
    Standing,
    Stay,
    Task,
    Verdict,
    judge,
    standing_of,
    without_blocking,
    without_finalizer,
    without_owners,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
KINDS = {"jobs.batch": ("batch/v1", "Job"), "pods": ("v1", "Pod"), "nodes": ("v1", "Node")}


def owner(uid: str, *, block: bool = True, kind: str = "Job", name: str = "") -> OwnerReference:
    return OwnerReference(
        api_version="batch/v1" if kind == "Job" else "v1",
        kind=kind,
        name=name or uid,
        uid=uid,
        block_owner_deletion=block,
    )


def meta(
    uid: str, *owners: OwnerReference, namespace: str = "n", deleting_with: tuple[str, ...] = ()
) -> Meta:
    return Meta(
        name=uid,
        namespace=namespace,
        uid=uid,
        resource_version="9",
        owner_references=owners,
        finalizers=deleting_with,
        deletion_timestamp=NOON if deleting_with else None,
    )


class World(OwnerGraph):
    """Graph with helpers for Jobs and Pods."""

    def __init__(self) -> None:
        super().__init__(KINDS)

    def job(self, metadata: Meta) -> list[Task]:
        return list(self.observe(Key("jobs.batch", metadata.namespace, metadata.name), metadata))

    def pod(self, metadata: Meta) -> list[Task]:
        return list(self.observe(Key("pods", metadata.namespace, metadata.name), metadata))


def test_an_object_whose_owners_are_known_needs_no_closer_look() -> None:
    world = World()
    assert world.job(meta("j")) == []
    assert world.pod(meta("p", owner("j"))) == []
    assert world.is_settled("p")


@pytest.mark.parametrize(
    "reference",
    [
        owner("absent"),
        owner("j", name="another-name"),
        owner("j", kind="Pod"),
    ],
)
def test_an_object_whose_owner_is_not_as_described_needs_one(reference: OwnerReference) -> None:
    world = World()
    world.job(meta("j"))
    assert world.pod(meta("p", reference)) == [Examine("p")]
    assert not world.is_settled("p")


def test_an_owner_that_is_seen_after_its_dependents_settles_them() -> None:
    world = World()
    assert world.pod(meta("p", owner("j"))) == [Examine("p")]
    world.job(meta("j"))
    assert world.is_settled("p")


def test_when_an_owner_is_gone_all_its_dependents_are_examined() -> None:
    world = World()
    world.job(meta("j"))
    for name in ("p1", "p2"):
        world.pod(meta(name, owner("j")))
    assert list(world.forget("j")) == [Examine("p1"), Examine("p2")]
    assert not world.is_settled("p1")


def test_an_owner_in_another_namespace_is_foreign_and_does_not_count() -> None:
    world = World()
    world.job(meta("j", namespace="other"))
    reference = owner("j")
    assert world.pod(meta("p", reference)) == [ForeignOwner("p", reference), Examine("p")]


def test_an_owner_without_namespace_may_own_everywhere() -> None:
    world = World()
    world.observe(Key("nodes", "", "node"), meta("node", namespace=""))
    assert world.pod(meta("p", owner("node", kind="Node"))) == []


def test_foreground_deletion_examines_the_owner_and_its_dependents_once() -> None:
    world = World()
    world.job(meta("j"))
    world.pod(meta("p", owner("j")))
    doomed = meta("j", deleting_with=("foregroundDeletion",))
    assert world.job(doomed) == [Examine("j"), Examine("p")]
    assert world.job(doomed) == []


def test_a_dependent_that_joins_a_waiting_owner_is_examined() -> None:
    world = World()
    world.job(meta("j", deleting_with=("foregroundDeletion",)))
    assert world.pod(meta("p", owner("j"))) == [Examine("p")]


def test_only_dependents_that_block_are_waited_for() -> None:
    world = World()
    world.job(meta("j", deleting_with=("foregroundDeletion",)))
    world.pod(meta("p1", owner("j")))
    world.pod(meta("p2", owner("j", block=False)))
    assert [node.uid for node in world.blocking_dependents("j")] == ["p1"]
    assert list(world.forget("p1")) == [Examine("j")]
    assert list(world.blocking_dependents("j")) == []


def test_a_dependent_that_stops_blocking_or_leaves_lets_its_owner_be_examined() -> None:
    for new in (meta("p", owner("j", block=False)), meta("p")):
        world = World()
        world.job(meta("j", deleting_with=("foregroundDeletion",)))
        world.pod(meta("p", owner("j")))
        assert Examine("j") in world.pod(new)


def test_orphan_deletion_is_carried_out_once() -> None:
    world = World()
    world.job(meta("j"))
    world.pod(meta("p", owner("j")))
    doomed = meta("j", deleting_with=("orphan",))
    assert world.job(doomed) == [Orphan("j")]
    assert world.job(doomed) == []
    assert [node.uid for node in world.dependents("j")] == ["p"]


def test_objects_missing_from_relist_are_absent() -> None:
    graph = World()
    for uid in ("a", "b", "c"):
        graph.job(meta(uid))
    graph.pod(meta("p"))
    assert list(graph.missing("jobs.batch", {"a", "b", "c"})) == []
    assert list(graph.missing("jobs.batch", {"a", "c"})) == ["b"]
    assert list(graph.missing("jobs.batch", set())) == ["a", "b", "c"]
    # Changed, and replaced by another; then gone; then a list that shows one more.
    graph.job(meta("a", deleting_with=("foregroundDeletion",)))
    assert list(graph.missing("jobs.batch", {"a", "b", "c"})) == []
    graph.forget("b")
    graph.forget("b")
    assert list(graph.missing("jobs.batch", {"a", "c"})) == []
    graph.job(meta("d"))
    assert list(graph.missing("jobs.batch", {"c", "d"})) == ["a"]
    assert list(graph.missing("pods", {"p"})) == []
    assert list(graph.missing("services", set())) == []


def test_state_of_deleted_objects_is_dropped() -> None:
    world = World()
    world.job(meta("j"))
    world.pod(meta("p", owner("j")))
    world.pod(meta("p"))
    world.pod(meta("p", owner("j")))
    world.forget("p")
    world.forget("j")
    assert len(world) == 0
    assert world._dependents == {}


WAITING_DEPENDENT = Node(Key("pods", "n", "d"), meta("d", deleting_with=("foregroundDeletion",)))
DEPENDENT = Node(Key("pods", "n", "d"), meta("d"))


@pytest.mark.parametrize(
    ("standings", "dependents", "verdict"),
    [
        (["solid"], [], Stay()),
        (["solid", "solid"], [], Stay()),
        (["solid", "dangling"], [], DropReferences(("o1",))),
        (["waiting", "solid", "dangling"], [], DropReferences(("o0", "o2"))),
        (["dangling"], [], DeleteObject("Background")),
        (["dangling"], [DEPENDENT], DeleteObject("Background")),
        (["waiting"], [], DeleteObject("Background")),
        (["waiting"], [DEPENDENT], DeleteObject("Foreground")),
        (["waiting", "dangling"], [DEPENDENT], DeleteObject("Foreground")),
        (["waiting"], [WAITING_DEPENDENT], DeleteObject("Foreground", unblock_owners=True)),
        (["unknown"], [], Stay()),
        (["unknown", "dangling"], [], Stay()),
        ([], [], Stay()),
    ],
)
def test_judge(standings: list[Standing], dependents: list[Node], verdict: Verdict) -> None:
    owners = [owner(f"o{i}") for i in range(len(standings))]
    by_uid = {
        reference.uid: standing for reference, standing in zip(owners, standings, strict=True)
    }
    assert judge(meta("x", *owners), by_uid, dependents) == verdict


@pytest.mark.parametrize(
    ("finalizer", "propagation"),
    [("orphan", "Orphan"), ("foregroundDeletion", "Foreground"), ("some/other", "Background")],
)
def test_an_abandoned_object_is_deleted_as_its_own_finalizers_ask(
    finalizer: str, propagation: str
) -> None:
    metadata = msgspec.structs.replace(meta("x", owner("o")), finalizers=(finalizer,))
    verdict = judge(metadata, {"o": "dangling"}, [])
    assert isinstance(verdict, DeleteObject)
    assert verdict.propagation == propagation


def test_an_object_that_is_being_deleted_is_left_to_it() -> None:
    metadata = meta("x", owner("o"), deleting_with=("some/finalizer",))
    assert judge(metadata, {"o": "dangling"}, []) == Stay()


@pytest.mark.parametrize(
    ("found", "standing"),
    [
        (None, "dangling"),
        (meta("another"), "dangling"),
        (meta("j"), "solid"),
        (meta("j", deleting_with=("foregroundDeletion",)), "waiting"),
        (meta("j", deleting_with=("batch.kubernetes.io/x",)), "solid"),
    ],
)
def test_how_an_owner_stands(found: Meta | None, standing: Standing) -> None:
    assert standing_of(owner("j"), found) == standing


def test_the_patches_are_guarded() -> None:
    metadata = msgspec.structs.replace(
        meta("x", owner("a"), owner("b", block=False)), finalizers=("orphan", "keep/me")
    )
    assert msgspec.json.decode(without_finalizer(metadata, "orphan")) == {
        "metadata": {"uid": "x", "resourceVersion": "9", "finalizers": ["keep/me"]}
    }
    assert msgspec.json.decode(without_owners("x", ["a"])) == {
        "metadata": {"uid": "x", "ownerReferences": [{"$patch": "delete", "uid": "a"}]}
    }
    assert msgspec.json.decode(without_blocking(metadata)) == {
        "metadata": {"uid": "x", "ownerReferences": [{"uid": "a", "blockOwnerDeletion": False}]}
    }
