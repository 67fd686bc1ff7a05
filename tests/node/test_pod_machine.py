"""State machine of a Pod: every event in every state, and invariants for any order of events."""

import copy
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from onejob.node.agent.observed_pod import ObservedPod
from onejob.node.agent.pod_events import (
    Adopted,
    Bind,
    BindingRefused,
    BindingWritten,
    FreeRoom,
    HookDone,
    LimitsChanged,
    PlacedHere,
    PodDeleted,
    PodEffect,
    PodEvent,
    PodSeen,
    Reconcile,
    RequestStatusWrite,
    ResizeDecided,
    SetTimer,
    StartContainer,
    StatusRefused,
    StatusTaken,
    StatusWritten,
    StopContainer,
    TakeRoom,
)
from onejob.node.agent.pod_machine import PodMachine, is_echo
from onejob.node.agent.pod_state import (
    UNKNOWN,
    WAITING,
    Active,
    Binding,
    NodeNow,
    Phase,
    PodState,
    Waiting,
)
from onejob.node.probing.results import Probed
from onejob.node.runtime import (
    AttemptRef,
    Ended,
    Lost,
    RuntimeEvent,
    RuntimeTraits,
    StartBlocked,
    Started,
    Starting,
    Warned,
)
from onejob.objects.pod import read_pod
from onejob.objects.pod_spec import NodePod, Resources, read_node_pod
from onejob.objects.pod_status import PodReport
from onejob.planning.pod.lifecycle import Exit
from onejob.planning.pod.status import NodeFacts
from tests.node.support import Document, a_pod

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOW = NodeNow(NOON)
HERE = "here"
ROOM = {"pods": 1}
CREATED, BOUND, CHANGED, WRITTEN = 5, 10, 11, 12
MACHINE = PodMachine(HERE, NodeFacts("process"), RuntimeTraits())
WITHOUT_PROGRAMS = PodMachine(HERE, NodeFacts("simulated"), RuntimeTraits(runs_programs=False))


def the_pod(
    revision: int = CREATED,
    *,
    node: str = "",
    grace: int | None = None,
    phase: str = "",
    **spec: Any,
) -> Document:
    pod = a_pod("anything")
    pod["metadata"] |= {"uid": "u", "resourceVersion": str(revision)}
    if grace is not None:
        pod["metadata"] |= {
            "deletionTimestamp": "2026-01-01T12:00:30Z",
            "deletionGracePeriodSeconds": grace,
        }
    pod["spec"] |= {"nodeName": node} if node else {}
    pod["spec"] |= spec
    if phase:
        pod["status"] = {"phase": phase}
    return pod


def node_pod(document: Document) -> NodePod:
    return read_node_pod(msgspec.json.encode(document))


def seen(document: Document) -> PodSeen:
    encoded = msgspec.json.encode(document)
    return PodSeen(ObservedPod(read_pod(encoded), encoded))


def ended(code: int = 0, attempt: int = 0) -> Ended:
    return Ended(AttemptRef("u", "c", attempt), Exit(code, NOON, NOON))


def started(attempt: int = 0) -> Started:
    return Started(AttemptRef("u", "c", attempt), NOON)


def reported(*events: RuntimeEvent) -> Reconcile:
    """Return the step that notes these reports of the runtime."""
    return Reconcile(events)


def play(
    *events: PodEvent,
    state: PodState = UNKNOWN,
    machine: PodMachine = MACHINE,
    node: NodeNow = NOW,
) -> tuple[PodState, list[PodEffect]]:
    """Return the state after these events, and the effects of the last one."""
    effects: list[PodEffect] = []
    for event in events:
        state, effects = machine.step(state, event, node)
    return state, effects


PLACED = PlacedHere(node_pod(the_pod()), ROOM)
TO_BINDING = (PLACED,)
TO_STARTING = (*TO_BINDING, BindingWritten(BOUND))
TO_RUNNING = (*TO_STARTING, reported(started()), StatusTaken(), StatusWritten(BOUND + 1))
TO_FINISHING = (*TO_STARTING, reported(started(), ended()), StatusTaken())
TO_ENDED = (*TO_FINISHING, StatusWritten(WRITTEN))

STATES: Mapping[Phase, PodState] = {
    "unknown": UNKNOWN,
    "waiting": WAITING,
    "binding": play(*TO_BINDING)[0],
    "running": play(*TO_RUNNING)[0],
    "finishing": play(*TO_FINISHING)[0],
    "ended": play(*TO_ENDED)[0],
}

EVENTS: Mapping[str, PodEvent] = {
    "seen unbound": seen(the_pod()),
    "seen bound here": seen(the_pod(WRITTEN + 1, node=HERE)),
    "seen bound elsewhere": seen(the_pod(WRITTEN + 1, node="there")),
    "seen late": seen(the_pod(BOUND, node=HERE)),
    "seen terminal": seen(the_pod(WRITTEN + 1, node=HERE, phase="Failed")),
    "seen deleting": seen(the_pod(WRITTEN + 1, node=HERE, grace=30)),
    "seen terminal and deleting": seen(
        the_pod(WRITTEN + 1, node=HERE, grace=30, phase="Succeeded")
    ),
    "deleted": PodDeleted(from_here=True),
    "deleted unbound": PodDeleted(from_here=False),
    "placed": PLACED,
    "binding written": BindingWritten(BOUND),
    "binding refused": BindingRefused(retry=False),
    "binding refused for now": BindingRefused(retry=True),
    "starting": reported(Starting(AttemptRef("u", "c", 0))),
    "started": reported(started()),
    "ended": reported(ended()),
    "blocked": reported(StartBlocked(AttemptRef("u", "c", 0), "ContainerCreating", "no volume")),
    "lost": reported(Lost(AttemptRef("u", "c", 0), NOON)),
    "warned": reported(Warned(AttemptRef("u", "c", 0), "NotAsAsked", "no")),
    "taken over": Adopted((started(),)),
    "hook done": HookDone("c", 0, NOON, ok=True),
    "probed": Probed("c", 0, ready=False),
    "resize decided": ResizeDecided(1),
    "limits changed": LimitsChanged("c", 0, Resources()),
    "reconcile": Reconcile(),
    "status taken": StatusTaken(),
    "status written": StatusWritten(WRITTEN),
    "status refused": StatusRefused("the disk is full"),
    "status of nobody": StatusRefused("not found", gone=True),
}

IGNORED = ""
#: Next phase and the names of effects, by state and event. Empty: nothing happens at all. An event
#: for which a state is not listed is impossible there: see `test_impossible_…`.
TABLE: Mapping[str, Mapping[Phase, str]] = {
    "seen unbound": {
        "unknown": "waiting Enqueue",
        "waiting": "waiting Enqueue",
        "binding": "binding",
        "running": IGNORED,
        "finishing": "finishing",
        "ended": IGNORED,
    },
    "seen bound here": {
        "unknown": "running TakeRoom FollowVolumes ReconcileSoon",
        "waiting": "running Dequeue TakeRoom FollowVolumes ReconcileSoon",
        "binding": "binding",
        "running": "running PodChanged ReconcileSoon",
        "finishing": "finishing",
        "ended": "running TakeRoom FollowVolumes ReconcileSoon",
    },
    "seen bound elsewhere": {
        "unknown": IGNORED,
        "waiting": "unknown Dequeue",
        "binding": "binding",
        "running": "running PodChanged ReconcileSoon",
        "finishing": "finishing",
        "ended": "unknown",
    },
    "seen late": {
        "unknown": "running TakeRoom FollowVolumes ReconcileSoon",
        "waiting": "running Dequeue TakeRoom FollowVolumes ReconcileSoon",
        "binding": "binding",
        "running": IGNORED,
        "finishing": "finishing",
        "ended": IGNORED,
    },
    "seen terminal": {
        "unknown": IGNORED,
        "waiting": "unknown Dequeue",
        "binding": "binding",
        "running": "running PodChanged ReconcileSoon",
        "finishing": "finishing",
        "ended": "unknown",
    },
    "seen deleting": {
        "unknown": "running TakeRoom FollowVolumes ReconcileSoon",
        "waiting": "running Dequeue TakeRoom FollowVolumes ReconcileSoon",
        "binding": "binding",
        "running": "running PodChanged ReconcileSoon",
        "finishing": "finishing",
        "ended": "running TakeRoom FollowVolumes ReconcileSoon",
    },
    "seen terminal and deleting": {
        "unknown": "unknown DeletePod",
        "waiting": "unknown Dequeue DeletePod",
        "binding": "binding",
        "running": "running PodChanged ReconcileSoon",
        "finishing": "finishing",
        "ended": "unknown DeletePod",
    },
    "deleted": {
        "unknown": "unknown DiscardPod",
        "waiting": "unknown Dequeue DiscardPod",
        "binding": "binding DiscardPod",
        "running": "unknown EndWork FreeRoom DiscardPod",
        "finishing": "unknown EndWork FreeRoom DiscardPod",
        "ended": "unknown DiscardPod",
    },
    "deleted unbound": {
        "unknown": IGNORED,
        "waiting": "unknown Dequeue",
        "binding": "binding",
        "running": "unknown EndWork FreeRoom",
        "finishing": "unknown EndWork FreeRoom",
        "ended": "unknown",
    },
    "placed": {
        "unknown": "binding Bind",
        "waiting": "binding Bind",
        "binding": IGNORED,
        "running": IGNORED,
        "finishing": IGNORED,
        "ended": IGNORED,
    },
    "binding written": {
        "unknown": IGNORED,
        "waiting": IGNORED,
        "binding": "running FollowVolumes StartContainer",
        "running": IGNORED,
        "finishing": IGNORED,
        "ended": IGNORED,
    },
    "binding refused": {
        "unknown": IGNORED,
        "waiting": IGNORED,
        "binding": "unknown FreeRoom",
        "running": IGNORED,
        "finishing": IGNORED,
        "ended": IGNORED,
    },
    "binding refused for now": {
        "unknown": IGNORED,
        "waiting": IGNORED,
        "binding": "waiting FreeRoom SetTimer",
        "running": IGNORED,
        "finishing": IGNORED,
        "ended": IGNORED,
    },
    "starting": {
        "unknown": IGNORED,
        "waiting": IGNORED,
        "binding": IGNORED,
        "running": "running",
        "finishing": "finishing",
        "ended": IGNORED,
    },
    "started": {
        "unknown": IGNORED,
        "waiting": IGNORED,
        "binding": IGNORED,
        "running": "running",
        "finishing": "finishing",
        "ended": IGNORED,
    },
    "ended": {
        "unknown": IGNORED,
        "waiting": IGNORED,
        "binding": IGNORED,
        "running": "finishing RequestStatusWrite",
        "finishing": "finishing",
        "ended": IGNORED,
    },
    "blocked": {
        "unknown": IGNORED,
        "waiting": IGNORED,
        "binding": IGNORED,
        "running": "running RecordWarning SetTimer RequestStatusWrite",
        "finishing": "finishing",
        "ended": IGNORED,
    },
    "lost": {
        "unknown": IGNORED,
        "waiting": IGNORED,
        "binding": IGNORED,
        "running": "finishing RequestStatusWrite",
        "finishing": "finishing",
        "ended": IGNORED,
    },
    "warned": {
        "unknown": IGNORED,
        "waiting": IGNORED,
        "binding": IGNORED,
        "running": "running RecordWarning",
        "finishing": "finishing",
        "ended": IGNORED,
    },
    "taken over": {
        "unknown": IGNORED,
        "waiting": IGNORED,
        "binding": IGNORED,
        "running": "running RefreshVolumes ReconcileSoon",
        "finishing": IGNORED,
        "ended": IGNORED,
    },
    "hook done": {
        "unknown": IGNORED,
        "waiting": IGNORED,
        "binding": IGNORED,
        "running": IGNORED,  # This container has no hook; containers with hooks are tested below.
        "finishing": IGNORED,
        "ended": IGNORED,
    },
    "probed": {
        "unknown": IGNORED,
        "waiting": IGNORED,
        "binding": IGNORED,
        "running": "running ReconcileSoon",
        "finishing": IGNORED,
        "ended": IGNORED,
    },
    "resize decided": {
        "unknown": IGNORED,
        "waiting": IGNORED,
        "binding": IGNORED,
        "running": IGNORED,
        "finishing": IGNORED,
        "ended": IGNORED,
    },
    "limits changed": {
        "unknown": IGNORED,
        "waiting": IGNORED,
        "binding": IGNORED,
        "running": IGNORED,
        "finishing": IGNORED,
        "ended": IGNORED,
    },
    "reconcile": {
        "unknown": IGNORED,
        "waiting": IGNORED,
        "binding": IGNORED,
        "running": "running",
        "finishing": "finishing",
        "ended": IGNORED,
    },
    "status taken": {
        "unknown": IGNORED,
        "waiting": IGNORED,
        "binding": IGNORED,
        "ended": IGNORED,
    },
    "status written": {
        "unknown": IGNORED,
        "waiting": IGNORED,
        "binding": IGNORED,
        "finishing": "ended EndWork FreeRoom ReleasePod",
        "ended": IGNORED,
    },
    "status refused": {
        "unknown": IGNORED,
        "waiting": IGNORED,
        "binding": IGNORED,
        "finishing": "finishing LogProblem SetTimer",
        "ended": IGNORED,
    },
    "status of nobody": {
        "unknown": IGNORED,
        "waiting": IGNORED,
        "binding": IGNORED,
        "finishing": "ended LogProblem EndWork FreeRoom ReleasePod",
        "ended": IGNORED,
    },
}
#: No write is in flight or requested in this state, so no response can arrive.
IMPOSSIBLE = {
    (event, "running") for event in ("status written", "status refused", "status of nobody")
} | {("status taken", phase) for phase in ("running", "finishing")}


def test_the_table_has_every_event_in_every_state() -> None:
    assert set(STATES) == set(get_args(Phase))
    assert {phase: state.phase for phase, state in STATES.items()} == {
        phase: phase for phase in STATES
    }
    assert {type(event) for event in EVENTS.values()} == set(get_args(PodEvent))
    cells = {(event, phase) for event, row in TABLE.items() for phase in row}
    assert cells | IMPOSSIBLE == {(event, phase) for event in EVENTS for phase in STATES}


@pytest.mark.parametrize(
    ("event", "phase", "expected"),
    [(event, phase, cell) for event, row in TABLE.items() for phase, cell in row.items()],
)
def test_a_step(event: str, phase: Phase, expected: str) -> None:
    state = STATES[phase]
    before = copy.deepcopy(state)
    following, effects = MACHINE.step(state, EVENTS[event], NOW)
    assert state == before
    if expected == IGNORED:
        assert following is state
        assert effects == []
    else:
        assert " ".join([following.phase, *names(effects)]) == expected


def names(effects: Sequence[PodEffect]) -> list[str]:
    return [type(effect).__name__ for effect in effects]


def of_kind(effects: Sequence[PodEffect], kind: type) -> list[Any]:
    return [effect for effect in effects if type(effect) is kind]


def to_write(state: PodState) -> PodReport:
    """Return the status that the writer would write."""
    assert isinstance(state, Active)
    assert state.write_requested
    assert state.unwritten is not None
    return state.unwritten


@pytest.mark.parametrize(
    "reports",
    [(reported(started(), ended()),), (reported(started()), reported(ended()))],
    ids=["at once", "a moment later"],
)
def test_a_container_that_ended_before_its_start_was_written_is_reported_once(
    reports: tuple[PodEvent, ...],
) -> None:
    state, _ = play(*TO_STARTING)
    requests: list[RequestStatusWrite] = []
    for report in reports:
        state, effects = play(report, state=state)
        requests += of_kind(effects, RequestStatusWrite)
    assert len(requests) == 1
    assert to_write(state).phase == "Succeeded"
    ended_container = to_write(state).container_statuses[0].state.terminated
    assert ended_container is not None
    assert ended_container.started_at == NOON


def test_a_status_that_is_being_written_is_followed_by_the_next() -> None:
    state, _ = play(*TO_STARTING, reported(started()))
    assert to_write(state).phase == "Running"
    state, effects = play(StatusTaken(), reported(ended()), state=state)
    assert not of_kind(effects, RequestStatusWrite)
    state, effects = play(StatusWritten(11), state=state)
    assert names(effects) == ["RequestStatusWrite"]
    assert state.phase == "finishing"
    assert to_write(state).phase == "Succeeded"
    state, _ = play(StatusTaken(), StatusWritten(12), state=state)
    assert state.phase == "ended"


def test_restarts_that_are_overtaken_before_they_could_be_written_are_counted() -> None:
    policy = PlacedHere(node_pod(the_pod(restartPolicy="Always")), ROOM)
    state, _ = play(policy, BindingWritten(BOUND), reported(started()), StatusTaken())
    for attempt in range(3):
        for event in (reported(ended(1, attempt)), reported(started(attempt + 1))):
            node = NodeNow(NOON + timedelta(hours=attempt))
            state, effects = MACHINE.step(state, event, node)
            assert not of_kind(effects, RequestStatusWrite)
    state, effects = play(StatusWritten(11), state=state)
    assert names(effects) == ["RequestStatusWrite"]
    container = to_write(state).container_statuses[0]
    assert container.restart_count == 3
    assert container.last_state.terminated is not None


def test_a_refused_status_is_dropped_if_there_is_a_later_one() -> None:
    state, _ = play(*TO_STARTING, reported(started()), StatusTaken(), reported(ended()))
    state, effects = play(StatusRefused("the disk is full"), state=state)
    assert names(effects) == ["LogProblem", "SetTimer"]
    state, effects = play(Reconcile(), state=state)
    assert names(effects) == ["RequestStatusWrite"]
    assert to_write(state).phase == "Succeeded"
    assert play(StatusTaken(), StatusWritten(WRITTEN), state=state)[0].phase == "ended"


@pytest.mark.parametrize("retry", [True, False])
def test_the_binding_of_a_pod_that_was_deleted_meanwhile_frees_its_room(retry: bool) -> None:
    gone = play(*TO_BINDING, PodDeleted(from_here=False))[0]
    for answer in (BindingWritten(BOUND), BindingRefused(retry)):
        state, effects = play(answer, state=gone)
        assert state is UNKNOWN
        assert effects == [FreeRoom(ROOM)]


def test_a_binding_that_was_refused_for_now_is_tried_again_later() -> None:
    state, effects = play(*TO_BINDING, BindingRefused(retry=True))
    assert isinstance(state, Waiting)
    assert of_kind(effects, SetTimer) == [SetTimer(NOON + timedelta(seconds=1))]
    state, effects = play(Reconcile(), state=state)
    assert names(effects) == ["Enqueue"]
    assert play(Reconcile(), state=state)[1] == []


def test_pod_bound_here_by_other_client_is_run() -> None:
    theirs = seen(the_pod(BOUND, node=HERE))
    state, effects = play(*TO_BINDING, theirs, BindingRefused(retry=False))
    assert state.phase == "running"
    assert names(effects) == ["FreeRoom", "TakeRoom", "FollowVolumes", "ReconcileSoon"]


def test_a_pod_that_was_bound_while_the_node_leaves_never_starts() -> None:
    leaving = NodeNow(NOON, leaving=True)
    state, effects = play(*TO_STARTING, node=leaving)
    assert state.phase == "finishing"
    assert (to_write(state).phase, to_write(state).reason) == ("Failed", "Terminated")
    assert not of_kind(effects, StartContainer)


def test_a_node_in_a_hurry_gives_no_grace() -> None:
    running = STATES["running"]
    state, effects = play(Reconcile(), state=running, node=NodeNow(NOON, leaving=True))
    assert [stop.grace_seconds for stop in of_kind(effects, StopContainer)] == [30]
    _, effects = play(Reconcile(), state=state, node=NodeNow(NOON, leaving=True, at_once=True))
    assert [stop.grace_seconds for stop in of_kind(effects, StopContainer)] == [0]


HOOKED = PlacedHere(
    node_pod(
        the_pod(
            containers=[
                {
                    "name": "c",
                    "image": "example",
                    "command": ["x"],
                    "lifecycle": {"postStart": {"exec": {"command": ["true"]}}},
                }
            ]
        )
    ),
    ROOM,
)


@pytest.mark.parametrize(
    ("ok", "expected"),
    [(True, ["ContainerRuns", "ReconcileSoon"]), (False, ["ReconcileSoon"])],
)
def test_a_container_runs_once_its_hook_is_done(ok: bool, expected: list[str]) -> None:
    state, effects = play(HOOKED, BindingWritten(BOUND), reported(started()))
    assert names(effects) == ["RunPostStart", "RequestStatusWrite"]
    # Repeated, it is not run again.
    state, effects = play(reported(started()), state=state)
    assert names(effects) == []
    state, effects = play(HookDone("c", 0, NOON, ok), state=state)
    assert names(effects) == expected
    _, effects = play(Reconcile(), state=state)
    assert bool(of_kind(effects, StopContainer)) != ok


def test_a_runtime_without_programs_runs_no_hooks() -> None:
    _, effects = play(HOOKED, BindingWritten(BOUND), reported(started()), machine=WITHOUT_PROGRAMS)
    assert names(effects) == ["ContainerRuns", "RequestStatusWrite"]


@pytest.mark.parametrize("rebooted", [True, False])
def test_a_pod_that_ran_and_of_which_nothing_is_left_is_lost(rebooted: bool) -> None:
    pod = the_pod(BOUND, node=HERE)
    if not rebooted:
        pod["status"] = {"startTime": "2026-01-01T11:00:00Z", "containerStatuses": [
            {"name": "c", "state": {"running": {"startedAt": "2026-01-01T11:00:00Z"}}}
        ]}  # fmt: skip
    events = (seen(pod), Adopted((), rebooted), Reconcile())
    state, _ = play(*events)
    status = to_write(state)
    assert status.phase == "Failed"
    assert [c.type for c in status.conditions if c.type == "DisruptionTarget"]
    # A runtime without programs begins anew.
    _, effects = play(*events, machine=WITHOUT_PROGRAMS)
    assert of_kind(effects, StartContainer)


@pytest.mark.parametrize(
    "arrivals",
    [("deletion", "answer"), ("deletion", "own write", "answer"), ("own write", "answer")],
    ids=" then ".join,
)
def test_a_deletion_overtaken_by_our_last_status_is_still_carried_out(
    arrivals: tuple[str, ...],
) -> None:
    events: dict[str, PodEvent] = {
        "deletion": seen(the_pod(CHANGED, node=HERE, grace=30)),
        "own write": seen(the_pod(WRITTEN, node=HERE, grace=30, phase="Succeeded")),
        "answer": StatusWritten(WRITTEN),
    }
    state, effects = play(*map(events.__getitem__, arrivals), state=STATES["finishing"])
    assert state.phase == "ended"
    assert names(effects)[-4:] == ["DeletePod", "EndWork", "FreeRoom", "ReleasePod"]


def test_a_deletion_that_arrives_after_the_answer_to_a_later_write_ends_the_pod() -> None:
    state, _ = play(*TO_STARTING, reported(started()), StatusTaken(), StatusWritten(WRITTEN))
    deletion = seen(the_pod(CHANGED, node=HERE, grace=30))
    state, effects = play(deletion, Reconcile(), state=state)
    assert [stop.grace_seconds for stop in of_kind(effects, StopContainer)] == [30]
    less = seen(the_pod(CHANGED, node=HERE, grace=5))
    _, effects = play(less, Reconcile(), state=state)
    assert [stop.grace_seconds for stop in of_kind(effects, StopContainer)] == [5]


def test_nothing_is_started_once_a_deletion_is_seen_though_a_status_is_on_its_way() -> None:
    blocked = StartBlocked(AttemptRef("u", "c", 0), "ContainerCreating", "no volume")
    state, _ = play(*TO_STARTING, reported(blocked), StatusTaken())
    later = NodeNow(NOON + timedelta(minutes=5))
    _, effects = play(Reconcile(), state=state, node=later)
    assert of_kind(effects, StartContainer)
    deletion = seen(the_pod(CHANGED, node=HERE, grace=30))
    _, effects = play(deletion, Reconcile(), state=state, node=later)
    assert not of_kind(effects, StartContainer)


def test_of_a_reboot_also_the_containers_without_a_record_are_lost() -> None:
    """They begin together, and the last records may not have reached the disk."""
    second = {"name": "second", "image": "x"}
    pod = the_pod(BOUND, node=HERE, restartPolicy="Never")
    pod["spec"]["containers"].append(second)
    state, effects = play(seen(pod), Adopted((ended(),), rebooted=True), Reconcile())
    assert not of_kind(effects, StartContainer)
    assert to_write(state).phase == "Failed"
    # Without a reboot it was never begun.
    _, effects = play(seen(pod), Adopted((ended(),), rebooted=False), Reconcile())
    assert [start.container.name for start in of_kind(effects, StartContainer)] == ["second"]


def restarted_pod(state: Document, last_state: Document) -> Document:
    """Return a Pod with a status in which its container was restarted once."""
    pod = the_pod(BOUND, node=HERE, restartPolicy="OnFailure")
    report = {"name": "c", "restartCount": 1, "state": state, "lastState": last_state}
    pod["status"] = {"startTime": "2026-01-01T11:00:00Z", "containerStatuses": [report]}
    return pod


_EXIT = {"terminated": {"exitCode": 1, "finishedAt": "2026-01-01T12:00:00Z"}}


def test_a_restart_that_only_the_status_knows_is_lost_and_not_begun_again() -> None:
    """The record of the attempt before reached the disk, that of the newest did not."""
    pod = restarted_pod({"running": {"startedAt": "2026-01-01T11:00:00Z"}}, _EXIT)
    state, effects = play(seen(pod), Adopted((ended(1),), rebooted=True), Reconcile())
    assert not of_kind(effects, StartContainer)
    assert to_write(state).phase == "Failed"
    assert to_write(state).container_statuses[0].restart_count == 1


def test_restarts_go_on_after_the_one_whose_end_only_the_status_knows() -> None:
    pod = restarted_pod({"waiting": {"reason": "CrashLoopBackOff"}}, _EXIT)
    later = NodeNow(NOON + timedelta(hours=1))
    taken = Adopted((ended(1),), rebooted=True)
    # The next one was due before the reboot: it may or may not have begun.
    _, effects = play(seen(pod), taken, Reconcile(), node=later)
    assert [start.attempt for start in of_kind(effects, StartContainer)] == [3]


@pytest.mark.parametrize(("rebooted", "attempt"), [(True, 2), (False, 1)])
def test_after_a_reboot_the_number_of_a_restart_that_was_due_is_not_used_again(
    rebooted: bool, attempt: int
) -> None:
    """It may have begun, and its record may have been lost with the machine."""
    pod = the_pod(BOUND, node=HERE, restartPolicy="OnFailure")
    taken = Adopted((ended(1),), rebooted)
    _, effects = play(seen(pod), taken, Reconcile())
    assert [start.attempt for start in of_kind(effects, StartContainer)] == [attempt]


@pytest.mark.parametrize("rebooted", [True, False])
def test_a_restart_that_is_being_made_is_waited_for(rebooted: bool) -> None:
    """A server died during the restart, before the consequences of the reboot were resolved."""
    pod = the_pod(BOUND, node=HERE, restartPolicy="OnFailure")
    taken = Adopted((ended(1), Starting(AttemptRef("u", "c", 1))), rebooted)
    state, effects = play(seen(pod), taken, Reconcile())
    assert not of_kind(effects, StartContainer)
    state, _ = play(reported(started(attempt=1), ended(attempt=1)), state=state)
    assert to_write(state).phase == "Succeeded"
    assert to_write(state).container_statuses[0].restart_count == 1


@pytest.mark.parametrize(("policy", "code"), [("Never", 1), ("OnFailure", 0)])
def test_a_container_that_is_not_restarted_keeps_its_number_over_a_reboot(
    policy: str, code: int
) -> None:
    pod = the_pod(BOUND, node=HERE, restartPolicy=policy)
    state, _ = play(seen(pod), Adopted((ended(code),), rebooted=True), Reconcile())
    assert to_write(state).container_statuses[0].restart_count == 0


def test_the_own_write_is_not_read_again() -> None:
    state, _ = play(*TO_STARTING, reported(started()), StatusTaken())
    state, effects = play(seen(the_pod(CHANGED, node=HERE)), state=state)
    assert effects == []
    state, effects = play(StatusWritten(CHANGED), state=state)
    assert effects == []


@pytest.mark.parametrize(("times", "seconds"), [(0, 1), (1, 2), (3, 8), (30, 300)])
def test_a_refused_status_waits_longer_each_time(times: int, seconds: int) -> None:
    state = STATES["finishing"]
    for _ in range(times):
        state, _ = play(StatusRefused("no"), Reconcile(), StatusTaken(), state=state)
    _, effects = play(StatusRefused("no"), state=state)
    assert of_kind(effects, SetTimer) == [SetTimer(NOON + timedelta(seconds=seconds))]


def test_a_pod_that_cannot_be_read_is_left_alone() -> None:
    observed = ObservedPod(read_pod(msgspec.json.encode(the_pod())), b"{")
    state, effects = play(PodSeen(observed))
    assert state is UNKNOWN
    assert names(effects) == ["LogProblem"]


# --- any order


class World:
    """Environment that responds to the machine's effects, in an order that the test chooses."""

    def __init__(self, machine: PodMachine) -> None:
        self.machine = machine
        self.state: PodState = UNKNOWN
        self.revision = WRITTEN
        self.room = 0
        self.requested = False
        self.writing = False
        self.binding = False
        self.final = False
        self.attempts: set[int] = set()

    def send(self, event: PodEvent, node: NodeNow) -> None:
        before = copy.deepcopy(self.state)
        following, effects = self.machine.step(self.state, event, node)
        assert self.state == before
        self.state = following
        for effect in effects:
            self._carry_out(effect)
        # Resources are held exactly while the Pod is ours.
        assert self.room == (following.phase in ("binding", "running", "finishing"))
        if isinstance(following, Active):
            assert (following.in_flight is not None) == self.writing
            assert following.write_requested == self.requested
            # An unrecorded status is being written, or will be upon a request or a timer.
            assert not (self.requested and self.writing)
        else:
            # The response to a write of a deleted Pod may still arrive.
            assert not isinstance(following, Binding) or self.binding

    def _carry_out(self, effect: PodEffect) -> None:
        match effect:
            case TakeRoom():
                self.room += 1
            case FreeRoom():
                self.room -= 1
                assert self.room >= 0
            case Bind():
                self.binding = True
            case StartContainer(attempt=attempt):
                assert not self.final, "started after its end was reported"
                assert attempt not in self.attempts, "an attempt was made twice"
                self.attempts.add(attempt)
            case RequestStatusWrite():
                assert not self.requested, "requested twice"
                self.requested = True
            case _:
                pass

    def take_write(self, node: NodeNow) -> None:
        if not self.requested or not isinstance(self.state, Active):
            return
        assert not self.final, "a status followed the last one"
        self.final = to_write(self.state).phase in ("Succeeded", "Failed")
        self.requested, self.writing = False, True
        self.send(StatusTaken(), node)

    def answer_write(self, ok: bool, node: NodeNow) -> None:
        if not self.writing or not isinstance(self.state, Active):
            return
        self.writing = False
        self.revision += 1
        if ok:
            self.send(StatusWritten(self.revision), node)
        else:
            self.final = False
            self.send(StatusRefused("no"), node)

    def answer_binding(self, ok: bool, retry: bool, node: NodeNow) -> None:
        if isinstance(self.state, Binding):
            self.binding = False
            self.send(BindingWritten(self.revision) if ok else BindingRefused(retry), node)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                [
                    "placed",
                    "bind",
                    "take",
                    "write",
                    "start",
                    "end",
                    "block",
                    "see",
                    "delete",
                    "turn",
                    "leave",
                    "lose",
                ]
            ),
            st.booleans(),
        ),
        max_size=30,
    ),
    st.sampled_from([MACHINE, WITHOUT_PROGRAMS]),
    st.sampled_from(["Never", "OnFailure", "Always"]),
)
def test_in_any_order_a_pod_has_its_room_while_it_is_ours_and_one_end(
    happenings: list[tuple[str, bool]], machine: PodMachine, policy: str
) -> None:
    world = World(machine)
    node = NOW
    placed = PlacedHere(node_pod(the_pod(restartPolicy=policy)), ROOM)
    for what, flag in happenings:
        node = replace(node, now=node.now + timedelta(minutes=6))
        newest = max(world.attempts, default=0)
        match what:
            case "placed":
                if world.state.phase in ("unknown", "waiting") and not world.attempts:
                    world.room += 1
                    world.send(placed, node)
            case "bind":
                world.answer_binding(flag, not flag, node)
            case "take":
                world.take_write(node)
            case "write":
                world.answer_write(flag, node)
            case "start":
                world.send(reported(started(newest)), node)
            case "end":
                world.send(reported(ended(int(flag), newest)), node)
            case "lose":
                world.send(reported(Lost(AttemptRef("u", "c", newest), node.now)), node)
            case "block":
                if not world.attempts:
                    world.send(EVENTS["blocked"], node)
            case "see":
                if world.state.phase not in ("unknown", "waiting", "ended"):
                    world.revision += 1
                    grace = 30 if flag else None
                    world.send(
                        seen(the_pod(world.revision, node=HERE, grace=grace, restartPolicy=policy)),
                        node,
                    )
            case "delete":
                world.send(PodDeleted(from_here=flag), node)
                if world.state is UNKNOWN:
                    return
            case "turn":
                world.send(Reconcile(), node)
            case "leave":
                node = replace(node, leaving=True, at_once=flag)
            case _:
                raise AssertionError(what)


@pytest.mark.parametrize("state", STATES.values(), ids=STATES)
@pytest.mark.parametrize("revision", [CREATED, BOUND, CHANGED, WRITTEN, WRITTEN + 1])
@pytest.mark.parametrize("grace", [None, 30])
def test_echo_events_change_nothing(state: PodState, revision: int, grace: int | None) -> None:
    event = seen(the_pod(revision, node=HERE, grace=grace))
    if not is_echo(state, event.observed.view):
        return
    following, effects = play(event, BindingWritten(CREATED), state=state)
    assert (following, effects) == play(BindingWritten(CREATED), state=state)


def test_watch_echoes_the_statuses_that_this_node_reported() -> None:
    def echoes(state: PodState, revision: int, **pod: Any) -> bool:
        return is_echo(state, seen(the_pod(revision, node=HERE, **pod)).observed.view)

    assert not echoes(STATES["binding"], CREATED)
    assert echoes(STATES["running"], BOUND + 1)
    assert not echoes(STATES["running"], BOUND + 2)
    # The write in flight may or may not be this one.
    assert not echoes(STATES["finishing"], WRITTEN)
