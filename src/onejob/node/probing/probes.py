"""Periodic probes of running containers; results are reported once they reach a threshold."""

import asyncio
from collections.abc import Callable

from msgspec import Struct

from onejob.clock import Clock
from onejob.node.probing.probe_checks import check
from onejob.node.probing.results import Probed
from onejob.node.runtime import AttemptRef, Runtime
from onejob.objects.pod_spec import Container, NodePod, Probe

#: Arguments: the Pod, and the reason and message of an event about it.
Warn = Callable[[NodePod, str, str], None]


class _Tally(Struct):
    """Counter of consecutive results, evaluated against the probe's thresholds."""

    successes: int = 0
    failures: int = 0

    def count(self, ok: bool, probe: Probe) -> bool | None:
        """Return True or False once the threshold of consecutive results is reached, else None."""
        if ok:
            self.successes, self.failures = self.successes + 1, 0
            return True if self.successes >= probe.success_threshold else None
        self.successes, self.failures = 0, self.failures + 1
        return False if self.failures >= probe.failure_threshold else None


class Prober:
    """Runner of all probes. `is_current` returns whether an attempt is still running; `probed` is
    called with the Pod's UID and each result."""

    def __init__(
        self,
        runtime: Runtime,
        clock: Clock,
        is_current: Callable[[AttemptRef], bool],
        probed: Callable[[str, Probed], None],
        warn: Warn,
    ) -> None:
        self._runtime = runtime
        self._clock = clock
        self._is_current = is_current
        self._probed = probed
        self._warn = warn
        self._tasks: dict[str, set[asyncio.Task[None]]] = {}

    def begin(self, pod: NodePod, container: Container, attempt: int) -> None:
        """Probe an attempt that has started, until it ends."""
        if container.startup_probe or container.readiness_probe or container.liveness_probe:
            ref = AttemptRef(pod.uid, container.name, attempt)
            task = asyncio.create_task(self._probe_attempt(pod, container, ref))
            tasks = self._tasks.setdefault(pod.uid, set())
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    def forget(self, uid: str) -> None:
        """Stop the probes of a Pod."""
        for task in self._tasks.pop(uid, ()):
            task.cancel()

    def stop(self) -> None:
        """Cancel all probes."""
        for tasks in self._tasks.values():
            for task in tasks:
                task.cancel()

    async def _probe_attempt(self, pod: NodePod, container: Container, ref: AttemptRef) -> None:
        """Probe a container until cancelled: startup first, then readiness and liveness."""
        if container.startup_probe is not None:
            await self._run_probe(pod, container, ref, container.startup_probe, "Startup")
        async with asyncio.TaskGroup() as group:
            if container.readiness_probe is not None:
                probe = container.readiness_probe
                group.create_task(self._run_probe(pod, container, ref, probe, "Readiness"))
            if container.liveness_probe is not None:
                probe = container.liveness_probe
                group.create_task(self._run_probe(pod, container, ref, probe, "Liveness"))

    async def _run_probe(
        self, pod: NodePod, container: Container, ref: AttemptRef, probe: Probe, kind: str
    ) -> None:
        """Execute a probe periodically and report its results."""
        tally = _Tally()
        await asyncio.sleep(probe.initial_delay_seconds)
        while self._is_current(ref):
            began = self._clock.monotonic()
            answer = await check(self._runtime, pod, container, ref, probe)
            if not self._is_current(ref):
                return
            if not answer.ok:
                self._warn(pod, "Unhealthy", f"{kind} probe failed: {answer.why}")
            # As in the kubelet, a probe that could not be made is ignored.
            verdict = None if answer.unasked else tally.count(answer.ok, probe)
            if verdict is not None and self._decide(pod, container, ref, kind, verdict):
                return
            elapsed = self._clock.monotonic() - began
            await asyncio.sleep(max(probe.period_seconds - elapsed, 0))

    def _decide(
        self, pod: NodePod, container: Container, ref: AttemptRef, kind: str, verdict: bool
    ) -> bool:
        """Report a result; return True if this probe is no longer needed."""
        name, attempt = ref.container, ref.attempt
        match kind, verdict:
            case "Readiness", _:
                self._probed(ref.uid, Probed(name, attempt, ready=verdict))
                return False
            case "Startup", True:
                ready = container.readiness_probe is None
                self._probed(ref.uid, Probed(name, attempt, started=True, ready=ready))
                return True
            case "Liveness", True:
                return False
            case _:
                message = f"Container {name} failed {kind.lower()} probe, will be restarted"
                self._warn(pod, "Unhealthy", message)
                self._probed(ref.uid, Probed(name, attempt, unhealthy=True))
                return True
