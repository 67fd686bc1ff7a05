"""Reasons why a Pod of a run does not start, with remedy and expected duration. Pure functions.

A run has no API for other clients: objects that its Pods need are created before them, or never.
Therefore most conditions that a cluster would wait for are known to be permanent here.
"""

import re
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from onejob.node.supervisor.pressure import PRESSURES
from onejob.objects.meta import Condition, View
from onejob.objects.pod_spec import NodePod, read_node_pod
from onejob.planning.names import WAITING_FOR_SLURM
from onejob.planning.pod.demand import demand_of, read_amounts, write_amounts
from onejob.planning.pod.lifecycle import is_sidecar
from onejob.planning.pod.placement import Candidate, NodeView, Taint, misfit
from onejob.wire.quantity import InvalidQuantity

#: Seconds before a permanent condition is reported: just enough to be sure that the observed state
#: is current.
_CERTAIN_SECONDS: Final = 1.5
#: Seconds before a condition is reported that the node retries and that may pass, such as a
#: registry error or a full disk.
_RETRIED_SECONDS: Final = 16.0
_CERTAIN_REASONS: Final = frozenset(
    {"CreateContainerConfigError", "ErrImageNeverPull", "InvalidImageName"}
)
_RETRIED_REASONS: Final = frozenset({"ErrImagePull", "ImagePullBackOff", "CreateContainerError"})
#: Mount errors that are permanent; others may pass, with room on the disk or a free path.
_CERTAIN_MOUNTS: Final = re.compile(
    r"not found|non-existent|does not provide|does not project|must be a relative path"
)
#: Created by a controller a moment after the namespace, so that its absence is temporary.
_COMES_BY_ITSELF: Final = "kube-root-ca.crt"
_ROOM: Final = "waiting for capacity"
_NODE: Final = "waiting for a node"
_SHORT: Final = re.compile(r"(?:Insufficient|Too many) ([^\s,]+?)[.,]?(?=\s|$)")
#: Taints of the node while it lacks a resource, for instance disk space.
_PASSING_TAINT: Final = "untolerated taint(s) {node.kubernetes.io/"

_PASS_FILE: Final = "pass the file that contains it to onejob run"
#: Part of the reason why a claim is pending -> remedy.
_CLAIM_STEPS: Final = {
    "has room for": "lower the request of the claim, or free space on the disk",
    "storageclass.storage.k8s.io": "correct storageClassName, or remove it for the default class",
    "no storage class is set": "remove storageClassName, or create a PersistentVolume",
    "volumes are not provided": "use volumeMode: Filesystem",
    "dataSource": "remove dataSource",
    "with a selector": "remove the selector, or create a PersistentVolume that matches",
    "external provisioner": "use the default class: no other provisioner runs here",
}
#: In steps that apply to runs only: a server may have other components.
_ONLY_IN_RUNS: Final = "a run"


class PodWait(msgspec.Struct, frozen=True):
    reason: str
    message: str
    next_step: str = ""
    #: Seconds after which the condition counts as permanent; None if it may pass at any moment,
    #: like a wait for room.
    patience_seconds: float | None = None
    #: Names of the insufficient resources.
    short: tuple[str, ...] = ()
    #: Whether no container of the Pod runs, sidecars aside, so that its state cannot change.
    idle: bool = True

    @property
    def lasting(self) -> bool:
        """Return whether the wait may last until a user intervenes."""
        return self.patience_seconds is not None

    @property
    def for_room(self) -> bool:
        """Return whether the Pod waits for other Pods to free resources on the node."""
        return not self.lasting and (bool(self.short) or self.message == _ROOM)

    @property
    def explained(self) -> bool:
        """Return whether the reason is complete.

        The scheduler names the insufficient resources a moment after a Pod has begun to wait for
        room.
        """
        return self.message not in (_ROOM, _NODE) or bool(self.short)

    def repeats(self, earlier: "PodWait") -> bool:
        """Return whether the condition adds nothing to `earlier`.

        It is the same, or the back-off after the pull error that `earlier` reported.
        """
        if self.reason == "ImagePullBackOff":
            return earlier.reason in ("ErrImagePull", "ImagePullBackOff")
        return self.text == earlier.text

    @property
    def text(self) -> str:
        """Reason and message of the wait."""
        return f"{self.reason}: {self.message}"

    @property
    def server_step(self) -> str:
        """The next step for a Pod of a server, where objects may still be created; "" if none."""
        step = self.next_step.replace(_PASS_FILE, "create it")
        return "" if _ONLY_IN_RUNS in step else step


def find_wait(document: bytes, node: NodeView | None) -> PodWait | None:
    """Return the reason why a Pod does not start; None if it is merely about to.

    Without `node`, the Pod is in a cluster, where other components may schedule it: the
    condition of one that is not scheduled is taken as it is, and never permanent.
    """
    pod = read_node_pod(document)
    if pod.spec.node_name:
        return _container_wait(pod, _waits_decoder.decode(document).status)
    return _placement_wait(pod, node)


def read_node(document: dict[str, Any]) -> NodeView:
    """Return a Node object as the scheduler's view."""
    spec, status = document.get("spec", {}), document.get("status", {})
    return NodeView(
        document["metadata"]["name"],
        document["metadata"].get("labels", {}),
        tuple(
            Taint(taint["key"], taint.get("value", ""), taint.get("effect", ""))
            for taint in spec.get("taints", ())
        ),
        spec.get("unschedulable", False),
        read_amounts(status.get("allocatable", {})),
    )


def short_resources(message: str) -> list[str]:
    """Return the insufficient resources in a scheduler message.

    Example: `0/1 nodes are available: 1 Insufficient cpu.`
    """
    return _SHORT.findall(message)


# --- before it has a node -------------------------------------------------------------------


def _placement_wait(pod: NodePod, node: NodeView | None) -> PodWait:
    """Return the wait of a Pod that is not bound to the node."""
    spec = pod.spec
    if spec.scheduling_gates:
        names = ", ".join(gate.name for gate in spec.scheduling_gates)
        text = f"spec.schedulingGates contains {names}"
        if node is None:
            return PodWait("SchedulingGated", text)
        step = "remove it: in a run, no other component does"
        return _lasting_wait("SchedulingGated", text, step)
    if spec.scheduler_name != "default-scheduler" and node is not None:
        return _lasting_wait(
            "Unscheduled",
            f'its schedulerName is "{spec.scheduler_name}"',
            "remove spec.schedulerName: onejob runs no other scheduler",
        )
    condition = pod.condition("PodScheduled")
    if node is None:
        message = condition.message if condition is not None else ""
        lacking = tuple(short_resources(message))
        return PodWait("Unschedulable", message or _NODE, short=lacking)
    try:
        demand = demand_of(spec)
    except InvalidQuantity as error:
        return _lasting_wait("Unschedulable", str(error), "correct the amount")
    created_at = pod.metadata.creation_timestamp
    assert created_at is not None, "the API stamps every object"
    why = misfit(Candidate(pod.uid, spec, demand, created_at), node)
    if not why:
        if spec.claim_volumes and condition is not None and "ersistent" in condition.message:
            return _claim_wait(condition.message)
        if spec.scheduling_group is not None and condition is not None and condition.message:
            return _gang_wait(condition.message)
        return _room_wait(condition)
    if _PASSING_TAINT in why:
        return PodWait("Unschedulable", why)
    short = short_resources(why)
    if not short:
        step = "a run has one node, without custom labels and taints: remove the constraint"
        return _lasting_wait("Unschedulable", why, step)
    asked, has = write_amounts(demand), write_amounts(node.allocatable)
    amounts = ", ".join(f"{name} {asked[name]} of {has.get(name, '0')}" for name in short)
    sample = ",".join(f"{name}={asked[name]}" for name in short)
    return _lasting_wait(
        "Unschedulable",
        f"{why.removesuffix('.')}: it requests {amounts}",
        f"reduce the request, or increase the capacity with --capacity {sample}",
    )


def _claim_wait(message: str) -> PodWait:
    """Return the wait for a PersistentVolumeClaim; the controller of claims gives its reason."""
    if "not found" in message and "storageclass" not in message:
        return _lasting_wait("Unschedulable", message, _PASS_FILE)
    for problem, step in _CLAIM_STEPS.items():
        if problem in message:
            # Only room on the disk may come by itself.
            certain = problem != "has room for"
            patience = _CERTAIN_SECONDS if certain else _RETRIED_SECONDS
            return PodWait("Unschedulable", message, step, patience)
    return PodWait("Unschedulable", message)


def _gang_wait(message: str) -> PodWait:
    from onejob.planning.pod.gang import TOO_LARGE

    if TOO_LARGE not in message:
        return PodWait("Unschedulable", message)
    step = "lower minCount, or increase the capacity of the node with --capacity"
    return _lasting_wait("Unschedulable", message, step)


def _room_wait(condition: Condition | None) -> PodWait:
    short = tuple(short_resources(condition.message)) if condition is not None else ()
    what = f": {', '.join(short)}" if short else ""
    return PodWait("Unschedulable", _ROOM + what, short=short)


# --- on its node ----------------------------------------------------------------------------


class _Waiting(View, frozen=True):
    reason: str = ""
    message: str = ""


class _Running(View, frozen=True):
    pass


class _State(View, frozen=True):
    waiting: _Waiting | None = None
    running: _Running | None = None


class _Container(View, frozen=True):
    name: str = ""
    image: str = ""
    state: _State = _State()


class _Status(View, frozen=True):
    init_container_statuses: tuple[_Container, ...] = ()
    container_statuses: tuple[_Container, ...] = ()


class _Pod(View, frozen=True):
    status: _Status = _Status()


_waits_decoder: Final = msgspec.json.Decoder(_Pod)


def _container_wait(pod: NodePod, status: _Status) -> PodWait | None:
    """Return the wait of a Pod whose containers do not run; None if it does not wait."""
    containers = (*status.init_container_statuses, *status.container_statuses)
    sidecars = {c.name for c in pod.spec.init_containers if is_sidecar(c)}
    idle = all(c.state.running is None or c.name in sidecars for c in containers)
    for container in containers:
        waiting = container.state.waiting
        if waiting is None:
            continue
        spec = pod.container(container.name)
        image = spec.image if spec is not None else container.image
        wait = _waiting(waiting.reason, " ".join(waiting.message.split()), image)
        if wait is not None:
            return replace(wait, idle=idle)
    return None


def _waiting(reason: str, message: str, image: str) -> PodWait | None:
    """Return the wait of a container in this state; None if it is expected to end soon."""
    if _COMES_BY_ITSELF in message:
        return None
    if reason in _CERTAIN_REASONS:
        return _lasting_wait(reason, message, _next_step(reason, message, image))
    if reason in PRESSURES or reason == WAITING_FOR_SLURM:
        return PodWait(reason, message)
    if reason in _RETRIED_REASONS:
        return PodWait(reason, message, _next_step(reason, message, image), _RETRIED_SECONDS)
    if message.startswith("MountVolume"):
        certain = _CERTAIN_MOUNTS.search(message) is not None
        step = _next_step("FailedMount", message, image)
        return PodWait(
            "FailedMount", message, step, _CERTAIN_SECONDS if certain else _RETRIED_SECONDS
        )
    return None


def _next_step(reason: str, message: str, image: str) -> str:
    """Return the user's remedy for a wait; "" if there is none."""
    if reason == "ErrImageNeverPull" and "image map" in message:
        return f"serve with --image-map {image}=COMMAND, or set the container's command"
    if reason == "ErrImageNeverPull":
        return f"pull {image} first, or remove imagePullPolicy: Never"
    if reason == "InvalidImageName":
        return "correct the container's image"
    if reason in _RETRIED_REASONS:
        return "check the image name and the network"
    if "key" in message and ("find" in message or "non-existent" in message):
        return "add the key, or mark the reference optional: true"
    if "runAsNonRoot" in message:
        return "set securityContext.runAsUser, or run onejob as another user than root"
    if "not found" in message:
        return f"{_PASS_FILE}, or mark the reference optional: true"
    if "does not provide" in message:
        return (
            "use emptyDir, hostPath, persistentVolumeClaim, configMap, secret, downwardAPI or "
            "projected volumes"
        )
    return ""


def _lasting_wait(reason: str, message: str, next_step: str) -> PodWait:
    return PodWait(reason, message, next_step, _CERTAIN_SECONDS)


# --- containers that could not be started ---------------------------------------------------

_INTERPRETERS: Final = {
    "bash": "bash",
    "js": "node",
    "pl": "perl",
    "py": "python3",
    "r": "Rscript",
    "rb": "ruby",
    "sh": "sh",
}
#: See `node/images.py`.
_NO_STAND_IN: Final = re.compile(r'has no command for image "([^"]+)"')
_MANIFESTS: Final = (".json", ".yaml", ".yml")


def interpreter_of(path: str) -> str:
    """Return the interpreter for a script by its file name; "" for an unknown extension."""
    return _INTERPRETERS.get(path.rpartition(".")[2].lower(), "") if "." in path else ""


def start_hint(message: str, folder: str) -> str:
    """Return a remedy for a StartError, or "".

    `folder` is the working directory of this run's commands.
    """
    if match := _NO_STAND_IN.search(message):
        return f"add a command, or map the image with --image-map {match[1]}=COMMAND"
    program, _, problem = message.removeprefix('exec: "').partition('": ')
    match problem:
        case "no such file or directory":
            return (
                f"commands without a workingDir start in {folder}; check that {program} exists "
                "there"
            )
        case "executable file not found in $PATH":
            return (
                f"check that {program} is installed; programs outside the PATH need a path: "
                f"./{program}"
            )
        case "permission denied":
            if program.endswith(_MANIFESTS):
                return f"to run the Jobs in it, use onejob run {program}, without --"
            interpreter = interpreter_of(program) or "sh"
            return f"run chmod +x {program}, or specify its interpreter: {interpreter} {program}"
        case "exec format error":
            run = f"{interpreter_of(program) or 'sh'} {program}"
            return f"add an interpreter as its first line, for example #!/bin/sh, or run {run}"
        case "its interpreter was not found":
            return f"the interpreter in the first line of {program} does not exist"
        case _:
            return ""
