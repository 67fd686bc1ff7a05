"""What one Pod's work learns from the watch, whatever order its own writes come back in."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import cast

import msgspec
import pytest

from onejob.client.base import Delete, Op, Patch, Result, Written
from onejob.node.agent.pod_work import PodWork
from onejob.node.agent.sighting import Sighting
from onejob.node.runtime import AttemptRef, Ended, Runtime, RuntimeTraits, Started
from onejob.objects.meta import Meta
from onejob.objects.pod import read_pod
from onejob.objects.pod_spec import Container, NodePod, read_node_pod
from onejob.planning.pod.lifecycle import Exit
from onejob.planning.pod.status import NodeFacts
from onejob.wire.errors import InternalError
from tests.node.support import Document, a_pod

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
BOUND, DELETED, WRITTEN = 10, 11, 12


class RecordingRuntime:
    traits = RuntimeTraits()

    def __init__(self) -> None:
        self.stops: list[float] = []

    def launch(self, pod: NodePod, container: Container, attempt: int) -> None: ...

    def stop(self, ref: AttemptRef, grace_seconds: float) -> None:
        self.stops.append(grace_seconds)


class Around:
    """An agent that writes nothing by itself: the test answers when it likes."""

    facts = NodeFacts("process", "127.0.0.1")

    def __init__(self) -> None:
        self.asked = RecordingRuntime()
        self.runtime = cast("Runtime", self.asked)
        self.writes: list[tuple[Op, Callable[[Result], None]]] = []
        self.looks: list[datetime] = []
        self.is_done = False

    def now(self) -> datetime:
        return NOON

    def write(self, op: Op, answer: Callable[[Result], None], of: Meta) -> None:
        self.writes.append((op, answer))

    def soon(self, work: PodWork) -> None:
        work.step()

    def look_again(self, work: PodWork, at: datetime) -> None:
        self.looks.append(at)

    def warn(self, pod: NodePod, reason: str, message: str) -> None: ...

    def pod_changed(self, work: PodWork) -> None: ...

    def greet(self, work: PodWork, container: Container, at: datetime) -> bool:
        return False

    def stop_container(self, work: PodWork, ref: AttemptRef, grace_seconds: int) -> None:
        self.runtime.stop(ref, grace_seconds)

    def container_started(self, work: PodWork, container: Container) -> None: ...

    def done(self, work: PodWork) -> None:
        self.is_done = True

    def answer(self, revision: int) -> None:
        _, answer = self.writes.pop(0)
        answer(Written(revision, b""))

    def refuse(self) -> Op:
        op, answer = self.writes.pop(0)
        answer(InternalError("the disk is full"))
        return op


def the_pod(revision: int, *, grace: int | None = None) -> Document:
    pod = a_pod("anything")
    pod["metadata"] |= {"uid": "u", "resourceVersion": str(revision)}
    if grace is not None:
        pod["metadata"] |= {
            "deletionTimestamp": "2026-01-01T12:00:30Z",
            "deletionGracePeriodSeconds": grace,
        }
    pod["spec"]["nodeName"] = "here"
    return pod


def seen(work: PodWork, pod: Document) -> None:
    document = msgspec.json.encode(pod)
    work.sighted(Sighting(read_pod(document), document))


def running_work(around: Around) -> PodWork:
    work = PodWork(read_node_pod(msgspec.json.encode(the_pod(BOUND))), around, {})
    work.step()
    work.happened(Started(AttemptRef("u", "c", 0), NOON))
    work.step()
    return work


@pytest.mark.parametrize(
    "arrivals",
    [("deletion", "answer"), ("deletion", "own write", "answer"), ("own write", "answer")],
    ids=" then ".join,
)
def test_a_deletion_overtaken_by_our_last_status_is_still_carried_out(
    arrivals: tuple[str, ...],
) -> None:
    around = Around()
    work = running_work(around)
    around.answer(BOUND)
    work.happened(Ended(AttemptRef("u", "c", 0), Exit(0, NOON, NOON)))
    work.step()
    own_write = the_pod(WRITTEN, grace=30)
    own_write["status"] = {"phase": "Succeeded"}
    for arrival in arrivals:
        if arrival == "answer":
            around.answer(WRITTEN)
        else:
            seen(work, own_write if arrival == "own write" else the_pod(DELETED, grace=30))
    (delete,) = [op for op, _ in around.writes]
    assert isinstance(delete, Delete)
    assert (delete.grace_seconds, delete.uid) == (0, "u")
    assert around.is_done


def test_a_deletion_that_arrives_after_the_answer_to_a_later_write_ends_the_pod() -> None:
    around = Around()
    work = running_work(around)
    around.answer(WRITTEN)
    seen(work, the_pod(DELETED, grace=30))
    assert around.asked.stops == [30]


def test_a_deletion_with_less_patience_shortens_the_one_under_way() -> None:
    around = Around()
    work = running_work(around)
    around.answer(BOUND)
    seen(work, the_pod(DELETED, grace=30))
    seen(work, the_pod(DELETED + 1, grace=30))
    assert around.asked.stops == [30]
    seen(work, the_pod(DELETED + 2, grace=2))
    seen(work, the_pod(DELETED + 3, grace=2))
    assert around.asked.stops == [30, 2]


def test_an_attempt_that_was_never_seen_to_run_is_reported_with_its_times() -> None:
    around = Around()
    work = PodWork(read_node_pod(msgspec.json.encode(the_pod(BOUND))), around, {})
    work.step()
    began = NOON - timedelta(seconds=3)
    work.happened(Ended(AttemptRef("u", "c", 0), Exit(0, NOON, began)))
    work.step()
    (patch,) = [op for op, _ in around.writes]
    assert isinstance(patch, Patch)
    status = msgspec.json.decode(patch.body)["status"]
    assert status["phase"] == "Succeeded"
    ended = status["containerStatuses"][0]["state"]["terminated"]
    assert (ended["startedAt"], ended["finishedAt"]) == (
        "2026-01-01T11:59:57Z",
        "2026-01-01T12:00:00Z",
    )


def test_a_last_status_that_is_refused_is_said_again_and_nothing_forgotten_before() -> None:
    around = Around()
    work = running_work(around)
    around.answer(BOUND)
    work.happened(Ended(AttemptRef("u", "c", 0), Exit(0, NOON, NOON)))
    work.step()
    refused = [around.refuse()]
    for _ in range(3):
        assert not around.is_done
        assert around.writes == []
        work.step()
        refused.append(around.refuse())
    # Less and less often.
    assert around.looks == sorted(set(around.looks)) != []
    work.step()
    ((again, _),) = around.writes
    assert refused == [again] * 4
    around.answer(WRITTEN)
    assert around.is_done


def test_a_refused_status_gives_way_to_a_newer_one() -> None:
    around = Around()
    work = running_work(around)
    running = around.refuse()
    work.happened(Ended(AttemptRef("u", "c", 0), Exit(0, NOON, NOON)))
    work.step()
    ((ended, _),) = around.writes
    assert ended != running
    around.answer(WRITTEN)
    assert around.is_done
    assert around.writes == []
