"""Production process runtime, connected to a supervisor on the simulated machine."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from onejob.clock import Clock
from onejob.node.options import NodeOptions
from onejob.node.process.runtime import ProcessRuntime
from onejob.node.process.runtime_settings import ProcessSettings
from onejob.node.runtime import AttemptRef, NodeContext
from onejob.objects.pod_spec import Container, NodePod
from sim.machine import Launch
from sim.node.machine import ProcessMachine


class WatchedRuntime(ProcessRuntime):
    """Process runtime that records the launch requests of the control plane."""

    def __init__(
        self,
        machine: ProcessMachine,
        folder: Path,
        clock: Clock,
        options: NodeOptions,
        context: NodeContext,
        *,
        revision: Callable[[], int],
        deletion_known: Callable[[str], bool],
    ) -> None:
        super().__init__(folder, clock, ProcessSettings(context, {}, options), machine.reach)
        self._machine = machine
        self._revision = revision
        self._deletion_known = deletion_known
        self._disconnected = False

    def disconnect(self) -> None:
        """Cut off a dead control plane. The requests that it sent are still delivered."""
        self._disconnected = True

    def launch(self, pod: NodePod, container: Container, attempt: int) -> None:
        if self._disconnected:
            return
        ref = AttemptRef(pod.uid, container.name, attempt)
        now = asyncio.get_running_loop().time()
        known = self._deletion_known(pod.uid)
        self._machine.launches.append(Launch(ref, pod.key, now, self._revision(), known))
        super().launch(pod, container, attempt)
