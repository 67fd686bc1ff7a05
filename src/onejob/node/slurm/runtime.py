"""Slurm runtime: the process runtime with a fleet of allocations in the role of its supervisor."""

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from onejob.clock import Clock
from onejob.node.descriptors import Sink
from onejob.node.exec_session import ExecSession
from onejob.node.options import NodeOptions, SlurmOptions
from onejob.node.process.runtime import ProcessRuntime
from onejob.node.process.runtime_settings import process_settings, variable_problem
from onejob.node.runtime import (
    AttemptRef,
    Delayed,
    Ended,
    LimitsInForce,
    Lost,
    NodeContext,
    Runtime,
    RuntimeEvent,
    RuntimeKind,
    RuntimeTraits,
    Unsupported,
)
from onejob.node.slurm import commands
from onejob.node.slurm.fleet import Fleet, default_shape
from onejob.node.slurm.sizing import GPU, SELECTORS, Needs, gpus_in
from onejob.node.supervisor import spawn
from onejob.objects.pod_spec import Container, NodePod
from onejob.planning.names import WAITING_FOR_SLURM
from onejob.planning.pod.demand import demand_of
from onejob.planning.pod.placement import Amounts
from onejob.wire.quantity import InvalidQuantity

#: Prefix of annotations of Pods that select an allocation.
ANNOTATION: Final = "slurm.onejob.dev/"
_DEFAULT_CPUS: Final = 1
_DEFAULT_MEMORY: Final = 1 << 30
#: Resources of a Pod that are limited by an allocation; others are limited by the node as a whole.
_LIMITED: Final = ("cpu", "memory", "pods", GPU)


class SlurmRuntime(ProcessRuntime):
    """Runtime of processes in Slurm allocations, which outlive the server.

    Guarantees: those of the process runtime. Attempts wait, reported as Delayed, until an
    allocation has room. Those that Slurm ends are reported as lost, with the reason.
    """

    name = "slurm"
    traits = RuntimeTraits(has_outputs=True)

    def __init__(
        self, data_dir: Path, clock: Clock, options: NodeOptions, context: NodeContext
    ) -> None:
        whole = allocation_capacity(options)
        isolates = spawn.can_isolate()
        self._fleet = Fleet(
            data_dir / "slurm",
            options.slurm,
            clock,
            server=server_id(data_dir),
            whole=whole,
            ends_with_server=options.pods_end_with_server,
            isolates=isolates,
            on_delay=self._report_delay,
        )
        self._slurm = options.slurm
        options = replace(
            options,
            # Slurm tracks and limits the processes of an allocation.
            pid_namespace="off",
            enforce_limits="rlimit" if options.enforce_limits == "rlimit" else "off",
        )
        settings = process_settings(options, context)
        super().__init__(data_dir, clock, settings, self._fleet.reach)

    @property
    def limits_in_force(self) -> LimitsInForce:
        return LimitsInForce("of allocations, by Slurm", enforced=True)

    async def close(self, *, end_pods: bool) -> None:
        await super().close(end_pods=end_pods)
        await self._fleet.close()

    @property
    def queries(self) -> int:
        """Number of queries that Slurm was asked."""
        return self._fleet.queries

    def launch(self, pod: NodePod, container: Container, attempt: int) -> None:
        self._fleet.announce(pod.uid, needs_of(pod, self._slurm))
        super().launch(pod, container, attempt)

    def limits_problem(self, container: Container, ref: AttemptRef) -> str:
        return "the allocation by Slurm limits it, which has a fixed size"

    async def open_session(
        self, pod: NodePod, ref: AttemptRef, command: Sequence[str], *, stdin: bool, tty: bool
    ) -> ExecSession:
        raise Unsupported("the slurm runtime does not support interactive exec")

    async def open_stdin(self, ref: AttemptRef, *, once: bool) -> Sink | None:
        raise Unsupported("the slurm runtime does not support stdin")

    async def first_processes(self) -> Mapping[AttemptRef, int]:
        return {}

    def _event(self, record: list[Any]) -> RuntimeEvent | None:
        event = super()._event(record)
        if isinstance(event, Ended | Lost) and (why := self._fleet.disruption(event.ref)):
            if isinstance(event, Lost):
                return Lost(event.ref, event.at, why)
            return Ended(event.ref, replace(event.exit, lost=True, disruption=why))
        return event

    def _report_delay(self, refs: Sequence[AttemptRef], reason: str) -> None:
        self._deliver([Delayed(ref, WAITING_FOR_SLURM, reason) for ref in refs])


def needs_of(pod: NodePod, options: SlurmOptions) -> Needs:
    """Return the requirements of a Pod, from its requests, deadline and annotations."""
    annotations = pod.metadata.annotations
    selected = {name: annotations.get(ANNOTATION + name, "") for name in SELECTORS}
    shape = default_shape(options)
    shape = replace(shape, **{name: value for name, value in selected.items() if value})
    try:
        demand: Amounts = demand_of(pod.spec)
    except InvalidQuantity:
        demand = {"pods": 1}
    demand = {name: demand[name] for name in _LIMITED if name in demand}
    if GPU in demand and not gpus_in(shape.gres):
        shape = replace(shape, gres=",".join(filter(None, (shape.gres, f"gpu:{demand[GPU]}"))))
    seconds = float(pod.spec.active_deadline_seconds or 0)
    return Needs(shape, demand, seconds)


def allocation_capacity(options: NodeOptions) -> Amounts:
    """Return the capacity of one allocation. Blocks if it has to be found out."""
    slurm = options.slurm
    cpus, memory = slurm.cpus, slurm.memory_bytes
    if not cpus or not memory:
        found_cpus, found_memory = commands.smallest_node(slurm.partition)
        cpus = cpus or found_cpus or _DEFAULT_CPUS
        memory = memory or found_memory or _DEFAULT_MEMORY
    return {"cpu": cpus * 1000, "memory": memory, "pods": slurm.pods}


def server_id(data_dir: Path) -> str:
    """Return a short name that distinguishes this server's allocations, on whichever host it is."""
    return blake2b(str(data_dir.resolve()).encode(), digest_size=4).hexdigest()


def _capacity(options: NodeOptions) -> Mapping[str, int]:
    """Return the capacity of the node: of as many allocations as may exist."""
    whole = allocation_capacity(options)
    total = {name: amount * options.slurm.max_nodes for name, amount in whole.items()}
    gpus = gpus_in(options.slurm.gres) * options.slurm.max_nodes
    return {**total, "ephemeral-storage": 1 << 60, **({GPU: gpus} if gpus else {})}


def _problem(options: NodeOptions) -> str:
    """Return why Slurm cannot be used; "" if it can."""
    if missing := commands.missing_commands():
        return f"--runtime slurm requires Slurm's commands: {', '.join(missing)} not found on PATH"
    slurm = options.slurm
    if slurm.min_nodes > slurm.max_nodes:
        return f"--min-nodes {slurm.min_nodes} is more than --max-nodes {slurm.max_nodes}"
    argv = commands.submission(
        default_shape(slurm),
        slurm,
        name="onejob-preflight",
        folder="/tmp",
        capacity=allocation_capacity(options),
    )
    if refused := commands.refusal(argv):
        return f"Slurm rejects the allocations of --runtime slurm: {refused}"
    return variable_problem(options)


def _make(options: NodeOptions, data_dir: Path, clock: Clock, context: NodeContext) -> Runtime:
    return SlurmRuntime(data_dir, clock, options, context)


KIND: Final = RuntimeKind(SlurmRuntime.traits, _make, _problem, _capacity)
