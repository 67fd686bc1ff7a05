"""Resource usage of containers and the machine, measured from processes."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onejob.clock import SystemClock
from onejob.node.process.process_table import TICKS_PER_SECOND, Process, ProcessTable
from onejob.node.process.usage_meter import UsageMeter, _Sample, _usage
from onejob.node.runtime import AttemptRef, RuntimeTraits
from onejob.node.simulated import SimulatedRuntime
from tests.node.support import NODE, a_process_node, shell

SECOND = TICKS_PER_SECOND
MB = 1024 * 1024


def process(pid: int, parent: int, ticks: int = 0, **other: int) -> Process:
    return Process(
        pid, parent, ticks, **{"began": 0, "private_bytes": 0, "shared_bytes": 0} | other
    )


def test_a_tree_is_a_process_and_all_that_descend_from_it() -> None:
    table = ProcessTable(
        [process(1, 0), process(2, 1), process(3, 2), process(4, 1), process(5, 3)]
    )
    assert sorted(p.pid for p in table.tree(2)) == [2, 3, 5]
    assert table.tree(9) == []


def test_first_usage_sample_is_average_since_start() -> None:
    tree = [process(7, 1, 3 * SECOND, began=10 * SECOND), process(8, 7, SECOND)]
    usage, window = _usage(tree, _Sample(0.0, {}), now=18.0)
    assert (usage.cpu_nanocores, window) == (500_000_000, 8.0)


def test_a_container_seen_before_has_the_average_since() -> None:
    tree = [process(7, 1, 30 * SECOND, began=10 * SECOND)]
    usage, window = _usage(tree, _Sample(100.0, {7: 28 * SECOND}), now=104.0)
    assert (usage.cpu_nanocores, window) == (500_000_000, 4.0)


def test_neither_an_old_sample_nor_one_of_another_process_counts() -> None:
    tree = [process(7, 1, 10 * SECOND, began=100 * SECOND)]
    usage, window = _usage(tree, _Sample(50.0, {7: 0}), now=200.0)
    assert (usage.cpu_nanocores, window) == (100_000_000, 100.0)
    # That pid 7 was another process: this one began later.
    usage, window = _usage(tree, _Sample(99.0, {7: 10**9}), now=110.0)
    assert (usage.cpu_nanocores, window) == (1_000_000_000, 10.0)


def test_shared_memory_counts_once() -> None:
    tree = [
        process(7, 1, private_bytes=5 * MB, shared_bytes=20 * MB),
        process(8, 7, private_bytes=1 * MB, shared_bytes=30 * MB),
    ]
    usage, _ = _usage(tree, _Sample(0.0, {}), now=1.0)
    assert usage.memory_bytes == 36 * MB


async def test_a_running_pod_is_measured_by_its_processes(tmp_path: Path) -> None:
    program = "import time; kept = bytearray(40 << 20); print(1, flush=True); time.sleep(60)"
    async with a_process_node(tmp_path) as node:
        created = await node.create(shell(f"python3 -c '{program}' | cat"))
        uid = created["metadata"]["uid"]
        await node.until("p", lambda pod: pod["status"].get("phase") == "Running")
        async with asyncio.timeout(60):
            assert await node.output("p", follow=True, limit_bytes=2) == "1\n"
        meter = UsageMeter(node.agent.runtime, NODE, SystemClock())
        measured = (await meter.pods())[uid]
        [(_, usage)] = measured.usage.items()
        assert usage.memory_bytes > 40 * MB
        assert await meter.pods() == {uid: measured}, "who asks again at once gets the same"
        machine = await meter.node()
        assert machine is not None
        assert machine.usage[NODE].memory_bytes > usage.memory_bytes


class NothingRuns(SimulatedRuntime):
    traits = RuntimeTraits(on_host=True)

    async def first_processes(self) -> Mapping[AttemptRef, int]:
        return {AttemptRef("u", "c", 0): 2**22 + 1}


async def test_processes_that_are_gone_and_runtimes_without_any_have_no_measurement() -> None:
    clock: Any = SystemClock()
    assert await UsageMeter(NothingRuns(clock), NODE, clock).pods() == {}
    meter = UsageMeter(SimulatedRuntime(clock), NODE, clock)
    assert (await meter.pods(), await meter.node()) == ({}, None)
