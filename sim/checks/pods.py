"""Invariants of Pods: final phases are final, and the machine runs only permitted Pods."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from onejob.node.runtime import AttemptRef
from onejob.objects.pod import Pod
from sim.checks.problems import Problems
from sim.checks.ran import Machinery, Ran
from sim.machine import Launch

TERMINAL, RUN, TRUTH = "terminal status", "deleted Pods never run", "what really ran"


@dataclass
class PodCheck:
    """Check of all Pods, and of the machine that ran them."""

    problems: Problems
    _last: dict[str, Pod] = field(default_factory=dict)
    #: First revision at which a Pod may run, and first revision at which it no longer may.
    _bound_at: dict[str, int] = field(default_factory=dict)
    _over_at: dict[str, int] = field(default_factory=dict)

    def see(self, pod: Pod, revision: int, *, gone: bool) -> None:
        uid, before = pod.metadata.uid, self._last.get(pod.metadata.uid)
        self._last[uid] = pod
        if pod.spec.node_name and not pod.metadata.deleting and not gone:
            self._bound_at.setdefault(uid, revision)
        if pod.terminal or gone:
            self._over_at.setdefault(uid, revision)
        if before is None:
            return
        if before.terminal and before.phase != pod.phase:
            self._complain(TERMINAL, pod, f"was {before.phase} and is {pod.phase}")
        if before.spec.node_name not in ("", pod.spec.node_name):
            self._complain(TERMINAL, pod, "was bound a second time")
        self._compare_containers(before, pod)

    def compare(self, machine: Machinery) -> None:
        self._check_launches(machine.launches)
        for text in machine.problems:
            self.problems.add(TRUTH, text)
        for pod in self._last.values():
            if pod.phase == "Succeeded":
                self._require_success(pod, machine)
            self._compare_codes(pod, machine)

    def _compare_containers(self, before: Pod, pod: Pod) -> None:
        if pod.spec.restart_policy != "Never":
            return
        ended = {
            status.name
            for status in before.status.container_statuses
            if status.state.terminated is not None
        }
        for status in pod.status.container_statuses:
            if status.name in ended and status.state.terminated is None:
                self._complain(TERMINAL, pod, f"its container {status.name} ended and came back")

    def _check_launches(self, launches: Sequence[Launch]) -> None:
        for launch in launches:
            uid, name = launch.ref.uid, launch.key.name
            if self._bound_at.get(uid, launch.revision + 1) > launch.revision:
                self.problems.add(RUN, f"{name} was started before its binding was on disk")
            if launch.deletion_known:
                self.problems.add(RUN, f"{name} was started though its deletion was known")

    def _compare_codes(self, pod: Pod, machine: Machinery) -> None:
        """Check that exit codes in the status match the machine's.

        An end that the control plane observed is never lost or altered.
        """
        for status in pod.status.container_statuses:
            ref = AttemptRef(pod.metadata.uid, status.name, status.restart_count)
            ran, said = machine.ran.get(ref), status.state.terminated
            if ran is None or said is None or ref in machine.unknowable:
                continue
            if ran.code != said.exit_code:
                text = f"{status.name} ended with {ran.code}, and its status says {said.exit_code}"
                self._complain(TRUTH, pod, text)

    def _require_success(self, pod: Pod, machine: Machinery) -> None:
        last: dict[str, Ran] = {}
        for ref, process in machine.ran.items():
            if ref.uid == pod.metadata.uid:
                last[ref.container] = max(last.get(ref.container, process), process, key=_attempt)
        for container in pod.spec.containers:
            ended = last.get(container.name)
            if ended is None or ended.code != 0:
                self._complain(TRUTH, pod, f"Succeeded, and {container.name} has not: {ended}")

    def _complain(self, check: str, pod: Pod, text: str) -> None:
        self.problems.add(check, f"Pod {pod.metadata.namespace}/{pod.metadata.name}: {text}")


def _attempt(process: Ran) -> int:
    return process.ref.attempt
