"""Operations per Pod in virtual time: the same on every machine, so that tests can bound them."""

import tempfile
from pathlib import Path
from random import Random

from onejob.benchmarks.counting import CountingCommitter, counting_codec, operations, since
from onejob.benchmarks.plane import MeasuredPlane, a_job, completions
from onejob.benchmarks.results import Measurement
from onejob.benchmarks.used_nodes import record_node
from onejob.node.options import NodeOptions
from onejob.server import ControlPlane, Settings, World
from onejob.store.writer import LoopCommitter
from onejob.virtual_time import run_virtual, virtual_clock

#: What a commit takes; everything else takes no time at all.
_COMMIT_SECONDS = 0.001


def per_pod(*, completions: int, parallelism: int, indexed: int = 0) -> Measurement:
    with tempfile.TemporaryDirectory(prefix="onejob-bench-") as folder:
        counts = run_virtual(_count(Path(folder), completions, parallelism, bool(indexed)))
    return Measurement({f"{name} per pod": count / completions for name, count in counts.items()})


async def _count(folder: Path, pods: int, parallelism: int, indexed: bool) -> dict[str, int]:
    committer = CountingCommitter(LoopCommitter(_COMMIT_SECONDS))
    plane = await ControlPlane.start(
        Settings(folder, NodeOptions(runtime=record_node("simulated"), name="node")),
        World(clock=virtual_clock(), rng=Random(1), committer=committer),
    )
    committer.revision = lambda: plane.store.revision
    try:
        async with completions(MeasuredPlane(plane, committer)) as seen:
            before = operations(plane, committer)
            with counting_codec() as codec:
                await plane.client.write(
                    a_job("counted", completions=pods, parallelism=parallelism, indexed=indexed)
                )
                await seen.of("counted")
            return {**since(before, operations(plane, committer)), **codec}
    finally:
        await plane.stop()
