"""A Pod's next step: one row per situation."""

from datetime import timedelta
from typing import Any

import pytest

from onejob.objects.meta import Meta
from onejob.objects.pod_spec import (
    Container,
    NodePod,
    NodePodSpec,
    NodePodStatus,
    Probe,
    RestartExitCodes,
    RestartRule,
)
from onejob.planning.pod import lifecycle as pod_lifecycle
from onejob.planning.pod.lifecycle import (
    Blocked,
    ContainerSeen,
    Exit,
    PodPlan,
    Start,
    Stop,
    back_off,
    plan_pod,
)
from onejob.virtual_time import NOON

RUNNING = ContainerSeen("running", 0, started_at=NOON, started=True, ready=True)
STARTING = ContainerSeen("starting", 0)
STOPPING = ContainerSeen("running", 0, started_at=NOON, started=True, stopping=True)


def exited(code: int, attempt: int = 0, **rest: Any) -> ContainerSeen:
    return ContainerSeen(
        "exited", attempt, exit=Exit(code, NOON, NOON), quick_restarts=attempt, **rest
    )


def a_pod(
    *containers: str | Container,
    policy: str = "Never",
    init: tuple[str | Container, ...] = (),
    meta: Meta | None = None,
    phase: str = "Pending",
    **spec: Any,
) -> NodePod:
    return NodePod(
        metadata=meta or Meta(name="p", namespace="n", uid="u"),
        spec=NodePodSpec(
            restart_policy=policy,
            containers=tuple(map(_container, containers)),
            init_containers=tuple(map(_container, init)),
            **spec,
        ),
        status=NodePodStatus(phase=phase),
    )


def _container(container: str | Container) -> Container:
    return container if isinstance(container, Container) else Container(name=container)


def sidecar(name: str) -> Container:
    return Container(name=name, restart_policy="Always")


def planned(pod: NodePod, seen: dict[str, ContainerSeen], seconds: float = 0) -> PodPlan:
    return plan_pod(pod, seen, NOON + timedelta(seconds=seconds), NOON)


@pytest.mark.parametrize(
    ("policy", "seen", "start", "phase"),
    [
        ("Never", {}, ("a", "b"), "Pending"),
        ("Never", {"a": STARTING, "b": STARTING}, (), "Pending"),
        ("Never", {"a": RUNNING, "b": STARTING}, (), "Pending"),
        ("Never", {"a": RUNNING, "b": RUNNING}, (), "Running"),
        ("Never", {"a": exited(0), "b": RUNNING}, (), "Running"),
        ("Never", {"a": exited(1), "b": RUNNING}, (), "Running"),
        ("Never", {"a": exited(0), "b": exited(0)}, (), "Succeeded"),
        ("Never", {"a": exited(0), "b": exited(1)}, (), "Failed"),
        ("OnFailure", {"a": exited(0), "b": exited(1)}, ("b",), "Running"),
        ("OnFailure", {"a": exited(0), "b": exited(0)}, (), "Succeeded"),
        ("Always", {"a": exited(0), "b": exited(1)}, ("a", "b"), "Running"),
    ],
)
def test_containers_restart_according_to_policy(
    policy: str, seen: dict[str, ContainerSeen], start: tuple[str, ...], phase: str
) -> None:
    plan = planned(a_pod("a", "b", policy=policy), seen)
    assert tuple(step.container for step in plan.start) == start
    assert plan.phase == phase


@pytest.mark.parametrize(
    ("own", "pods", "code", "again"),
    [
        ("OnFailure", "Never", 1, True),
        ("OnFailure", "Never", 0, False),
        ("Never", "Always", 1, False),
        ("Always", "Never", 0, True),
        ("", "OnFailure", 1, True),
    ],
)
def test_a_containers_own_restart_policy_outranks_its_pods(
    own: str, pods: str, code: int, again: bool
) -> None:
    pod = a_pod(Container(name="a", restart_policy=own), policy=pods)
    assert bool(planned(pod, {"a": exited(code)}).start) is again


@pytest.mark.parametrize(
    ("operator", "code", "again"),
    [("In", 42, True), ("In", 1, False), ("NotIn", 42, False), ("NotIn", 1, True)],
)
def test_a_restart_rule_decides_by_exit_code(operator: str, code: int, again: bool) -> None:
    rule = RestartRule(exit_codes=RestartExitCodes(operator=operator, values=(42,)))
    container = Container(name="a", restart_policy="Never", restart_policy_rules=(rule,))
    assert bool(planned(a_pod(container), {"a": exited(code)}).start) is again


def ruled(name: str, own: str, *codes: int) -> Container:
    """Return a container that is restarted at these exit codes, whatever its policy."""
    rule = RestartRule(exit_codes=RestartExitCodes(operator="In", values=codes))
    return Container(name=name, restart_policy=own, restart_policy_rules=(rule,) if codes else ())


@pytest.mark.parametrize(
    ("policy", "own", "codes", "code", "start", "phase"),
    [
        # The Pod's policy, as upstream: an init container runs until it succeeds.
        ("Never", "", (), 1, "", "Failed"),
        ("Always", "", (), 1, "i", "Pending"),
        ("Always", "", (), 0, "a", "Pending"),
        # Its own policy outranks the Pod's.
        ("Always", "Never", (), 1, "", "Failed"),
        ("OnFailure", "Never", (), 1, "", "Failed"),
        ("Never", "OnFailure", (), 1, "i", "Pending"),
        ("Never", "OnFailure", (), 0, "a", "Pending"),
        # Rules outrank both, but do not repeat a success.
        ("Never", "Never", (42,), 42, "i", "Pending"),
        ("Never", "Never", (42,), 1, "", "Failed"),
        ("Never", "OnFailure", (42,), 1, "i", "Pending"),
        ("Always", "Never", (42,), 0, "a", "Pending"),
    ],
)
def test_init_container_restarts_by_rules_then_own_policy_then_the_pods(
    policy: str, own: str, codes: tuple[int, ...], code: int, start: str, phase: str
) -> None:
    plan = planned(a_pod("a", policy=policy, init=(ruled("i", own, *codes),)), {"i": exited(code)})
    assert [step.container for step in plan.start] == ([start] if start else [])
    assert plan.phase == phase


@pytest.mark.parametrize(
    ("policy", "own", "codes", "code", "start", "phase"),
    [
        ("Never", "Always", (), 0, "a", "Running"),
        ("Never", "OnFailure", (), 0, "", "Succeeded"),
        ("OnFailure", "Never", (), 1, "", "Failed"),
        ("Always", "Never", (), 0, "", "Succeeded"),
        ("Always", "Never", (), 1, "", "Failed"),
        ("Never", "Never", (42,), 42, "a", "Running"),
        ("Always", "Never", (42,), 1, "", "Failed"),
    ],
)
def test_phase_is_final_once_no_container_restarts(
    policy: str, own: str, codes: tuple[int, ...], code: int, start: str, phase: str
) -> None:
    other = Container(name="b", restart_policy="Never")
    pod = a_pod(ruled("a", own, *codes), other, policy=policy)
    plan = planned(pod, {"a": exited(code), "b": exited(0)})
    assert [step.container for step in plan.start] == ([start] if start else [])
    assert plan.phase == phase


def test_first_matching_restart_rule_decides() -> None:
    def rule(action: str, *codes: int) -> RestartRule:
        return RestartRule(action, RestartExitCodes(operator="In", values=codes))

    rules = (rule("Restart", 42), rule("RestartAllContainers", 42, 43))
    container = Container(name="a", restart_policy="Never", restart_policy_rules=rules)
    other = Container(name="b", restart_policy="Never")
    plan = planned(a_pod(container, other), {"a": exited(42), "b": RUNNING})
    assert [step.container for step in plan.start] == ["a"]
    assert plan.stop == ()
    plan = planned(a_pod(container, other), {"a": exited(43), "b": RUNNING})
    assert [step.container for step in plan.stop] == ["b"]


@pytest.mark.parametrize("code", [0, 1, 42])
def test_sidecar_with_a_rule_restarts_at_every_code(code: int) -> None:
    pod = a_pod("a", init=(ruled("s", "Always", 42),))
    plan = planned(pod, {"s": exited(code), "a": RUNNING})
    assert [step.container for step in plan.start] == ["s"]
    assert plan.phase == "Running"


@pytest.mark.parametrize(
    ("restarts", "seconds"), [(0, 0), (1, 10), (2, 20), (3, 40), (5, 160), (6, 300), (60, 300)]
)
def test_the_first_restart_is_immediate_and_later_ones_wait_longer_each_time(
    restarts: int, seconds: int
) -> None:
    assert back_off(restarts) == timedelta(seconds=seconds)


def test_a_container_in_back_off_is_looked_at_when_it_is_over() -> None:
    pod = a_pod("a", policy="OnFailure")
    crashed = {"a": exited(1, attempt=1)}
    early = planned(pod, crashed, seconds=9.9)
    assert early.start == ()
    assert early.backing_off == {"a": NOON + timedelta(seconds=10)}
    assert early.look_again_at == NOON + timedelta(seconds=10)
    assert planned(pod, crashed, seconds=10).start == (Start("a", 2),)


def test_a_long_run_makes_the_next_restart_immediate_again() -> None:
    long_run = Exit(1, NOON, NOON - timedelta(minutes=11))
    seen = ContainerSeen("exited", 7, exit=long_run, quick_restarts=7)
    assert planned(a_pod("a", policy="OnFailure"), {"a": seen}).start == (Start("a", 8),)
    assert pod_lifecycle.begin(seen).quick_restarts == 1


@pytest.mark.parametrize(
    ("seen", "start", "phase"),
    [
        ({}, ("i",), "Pending"),
        ({"i": RUNNING}, (), "Pending"),
        ({"i": exited(0)}, ("j",), "Pending"),
        ({"i": exited(0), "j": exited(0)}, ("a",), "Pending"),
        ({"i": exited(0), "j": exited(0), "a": RUNNING}, (), "Running"),
        ({"i": exited(1)}, (), "Failed"),
    ],
)
def test_init_containers_run_one_after_the_other_before_the_rest(
    seen: dict[str, ContainerSeen], start: tuple[str, ...], phase: str
) -> None:
    plan = planned(a_pod("a", init=("i", "j")), seen)
    assert tuple(step.container for step in plan.start) == start
    assert plan.phase == phase


def test_an_init_container_of_an_always_pod_is_not_run_again_after_success() -> None:
    plan = planned(a_pod("a", policy="Always", init=("i",)), {"i": exited(0)})
    assert plan.start == (Start("a", 0),)


def test_a_failed_init_container_is_restarted_in_place_when_the_policy_allows() -> None:
    plan = planned(a_pod("a", policy="OnFailure", init=("i",)), {"i": exited(1)})
    assert plan.start == (Start("i", 1),)
    assert plan.phase == "Pending"


@pytest.mark.parametrize(
    ("seen", "start", "stop", "phase"),
    [
        ({}, ("s",), (), "Pending"),
        ({"s": STARTING}, (), (), "Pending"),
        ({"s": ContainerSeen("running", 0, started_at=NOON)}, (), (), "Pending"),
        ({"s": RUNNING}, ("a",), (), "Pending"),
        ({"s": RUNNING, "a": RUNNING}, (), (), "Running"),
        ({"s": exited(0), "a": RUNNING}, ("s",), (), "Running"),
        ({"s": RUNNING, "a": exited(0)}, (), ("s",), "Running"),
        ({"s": STOPPING, "a": exited(0)}, (), (), "Running"),
        ({"s": exited(143), "a": exited(0)}, (), (), "Succeeded"),
        ({"s": exited(0), "a": exited(1)}, (), (), "Failed"),
    ],
)
def test_sidecar_never_decides_pod_outcome(
    seen: dict[str, ContainerSeen], start: tuple[str, ...], stop: tuple[str, ...], phase: str
) -> None:
    plan = planned(a_pod("a", init=(sidecar("s"),)), seen)
    assert tuple(step.container for step in plan.start) == start
    assert tuple(step.container for step in plan.stop) == stop
    assert plan.phase == phase


def test_sidecars_are_stopped_last_to_first_after_the_containers() -> None:
    pod = a_pod("a", init=(sidecar("s"), sidecar("t")), meta=_deleting(5))
    seen = {"s": RUNNING, "t": RUNNING, "a": RUNNING}
    assert planned(pod, seen).stop == (Stop("a", 5),)
    seen["a"] = exited(0)
    assert planned(pod, seen).stop == (Stop("t", 5),)
    seen["t"] = exited(0)
    assert planned(pod, seen).stop == (Stop("s", 5),)


def _deleting(grace: int) -> Meta:
    return Meta(
        name="p",
        namespace="n",
        uid="u",
        deletion_timestamp=NOON + timedelta(seconds=grace),
        deletion_grace_period_seconds=grace,
    )


@pytest.mark.parametrize(
    ("seen", "stop", "phase", "busy"),
    [
        ({"a": RUNNING}, (Stop("a", 5),), "Running", True),
        ({"a": STOPPING}, (), "Running", True),
        ({"a": exited(0)}, (), "Succeeded", False),
        ({"a": exited(143)}, (), "Failed", False),
        ({}, (), "Failed", False),
    ],
)
def test_a_deleted_pod_is_stopped_and_ends_by_its_exits_without_restarts(
    seen: dict[str, ContainerSeen], stop: tuple[Stop, ...], phase: str, busy: bool
) -> None:
    plan = planned(a_pod("a", policy="Always", meta=_deleting(5)), seen)
    assert (plan.start, plan.stop, plan.phase, plan.busy) == ((), stop, phase, busy)


def test_a_stricter_order_to_stop_is_passed_on_and_a_milder_one_is_not() -> None:
    told = ContainerSeen("running", 0, started_at=NOON, stopping=True, stop_grace_seconds=30)
    assert planned(a_pod("a", meta=_deleting(5)), {"a": told}).stop == (Stop("a", 5),)
    assert planned(a_pod("a", meta=_deleting(60)), {"a": told}).stop == ()


def test_a_pod_past_its_deadline_is_stopped_and_fails_even_if_it_exits_cleanly() -> None:
    pod = a_pod("a", active_deadline_seconds=60, termination_grace_period_seconds=7)
    before = planned(pod, {"a": RUNNING}, seconds=59)
    assert before.stop == ()
    assert before.look_again_at == NOON + timedelta(seconds=60)
    assert planned(pod, {"a": RUNNING}, seconds=60).stop == (Stop("a", 7),)
    after = planned(pod, {"a": exited(0)}, seconds=61)
    assert (after.phase, after.reason) == ("Failed", "DeadlineExceeded")


def test_a_lost_attempt_fails_the_pod_and_is_never_made_again() -> None:
    lost = pod_lifecycle.lose(RUNNING, NOON)
    plan = planned(a_pod("a", policy="Always"), {"a": lost})
    assert plan.start == ()
    assert plan.phase == "Failed"
    assert plan.disruption


def test_foreign_terminal_phase_stops_containers_and_is_kept() -> None:
    plan = planned(a_pod("a", phase="Failed"), {"a": RUNNING})
    assert [stop.container for stop in plan.stop] == ["a"]
    assert (plan.phase, plan.busy) == ("Failed", True)
    assert not planned(a_pod("a", phase="Failed"), {"a": exited(0)}).busy


def test_an_unhealthy_container_is_stopped_once_with_its_probes_grace() -> None:
    probe = Probe(termination_grace_period_seconds=3)
    pod = a_pod(Container(name="a", liveness_probe=probe), policy="Always")
    sick = ContainerSeen("running", 0, started_at=NOON, started=True, unhealthy=True)
    assert planned(pod, {"a": sick}).stop == (Stop("a", 3),)
    stopping = ContainerSeen("running", 0, started_at=NOON, unhealthy=True, stopping=True)
    assert planned(pod, {"a": stopping}).stop == ()


def test_a_blocked_container_is_tried_again_later_and_its_attempt_does_not_count() -> None:
    later = NOON + timedelta(seconds=5)
    begun = pod_lifecycle.begin(pod_lifecycle.UNSEEN)
    blocked = pod_lifecycle.block(begun, Blocked("CreateContainerConfigError", "why", later))
    plan = planned(a_pod("a"), {"a": blocked})
    assert (plan.start, plan.phase, plan.look_again_at) == ((), "Pending", later)
    assert planned(a_pod("a"), {"a": blocked}, seconds=5).start == (Start("a", 0),)


def restarting_all(*codes: int) -> Container:
    rule = RestartRule("RestartAllContainers", RestartExitCodes(values=codes))
    return Container(name="a", restart_policy="Never", restart_policy_rules=(rule,))


def test_restart_all_stops_the_others_then_begins_with_the_first_init_container() -> None:
    sidecar = Container(name="s", restart_policy="Always")
    pod = a_pod(restarting_all(42), "b", init=("i", sidecar))
    seen = {"i": exited(0), "s": RUNNING, "a": exited(42), "b": RUNNING}
    assert planned(pod, seen).stop == (Stop("b", 30),)
    seen["b"] = exited(143)
    assert planned(pod, seen).stop == (Stop("s", 30),)
    seen["s"] = exited(143)
    plan = planned(pod, seen)
    assert (plan.restart_all, plan.start, plan.phase) == (True, (), "Running")
    seen = {name: pod_lifecycle.rewind(state) for name, state in seen.items()}
    assert planned(pod, seen).start == (Start("i", 1),)
    seen["i"] = pod_lifecycle.end(pod_lifecycle.begin(seen["i"]), Exit(0, NOON, NOON))
    assert planned(pod, seen).start == (Start("s", 1),)
    seen["s"] = ContainerSeen("running", 1, started_at=NOON, started=True, ready=True)
    assert planned(pod, seen).start == (Start("a", 1), Start("b", 1))


def test_restart_all_waits_for_the_back_off_of_its_trigger() -> None:
    plan = planned(a_pod(restarting_all(42), "b"), {"a": exited(42, 1), "b": exited(143)})
    assert not plan.restart_all
    assert plan.backing_off == {"a": NOON + timedelta(seconds=10)}


def test_restart_all_does_not_restart_a_deleted_pod_nor_after_another_code() -> None:
    meta = Meta(name="p", namespace="n", uid="u", deletion_timestamp=NOON)
    seen = {"a": exited(42), "b": exited(143)}
    assert planned(a_pod(restarting_all(42), "b", meta=meta), seen).phase == "Failed"
    assert planned(a_pod(restarting_all(41), "b"), seen).phase == "Failed"


def test_restart_all_happens_once_although_the_trigger_cannot_be_started_at_first() -> None:
    began = pod_lifecycle.begin(pod_lifecycle.rewind(exited(42)))
    blocked = Blocked("CreateContainerConfigError", "no", NOON + timedelta(seconds=5))
    again = pod_lifecycle.block(began, blocked)
    assert (again.stage, again.attempt) == ("waiting", 0)
    assert planned(a_pod(restarting_all(42)), {"a": again}).restart_all is False


def debugged(*names: str, **spec: Any) -> NodePod:
    return a_pod("a", ephemeral_containers=tuple(map(_container, names)), **spec)


def test_ephemeral_containers_start_at_once_and_never_again() -> None:
    pod = debugged("x", init=("i",))
    assert planned(pod, {"i": RUNNING}).start == (Start("x", 0),)
    for seen in (STARTING, RUNNING, exited(1)):
        assert planned(pod, {"i": RUNNING, "x": seen}).start == ()
    blocked = ContainerSeen(blocked=Blocked("ErrImagePull", "", NOON + timedelta(seconds=9)))
    plan = planned(pod, {"i": RUNNING, "x": blocked})
    assert (plan.start, plan.look_again_at) == ((), NOON + timedelta(seconds=9))


def test_the_end_of_an_ephemeral_container_does_not_concern_its_pod() -> None:
    pod = debugged("x")
    lost = ContainerSeen("exited", 0, exit=Exit(137, NOON, NOON, lost=True))
    for seen in (exited(1), lost):
        assert planned(pod, {"a": RUNNING, "x": seen}).phase == "Running"
        plan = planned(pod, {"a": exited(0), "x": seen})
        assert (plan.phase, plan.busy) == ("Succeeded", False)


def test_ephemeral_containers_are_stopped_with_their_pod() -> None:
    plan = planned(debugged("x"), {"a": exited(0), "x": RUNNING})
    assert (plan.stop, plan.phase) == ((Stop("x", 30),), "Running")
