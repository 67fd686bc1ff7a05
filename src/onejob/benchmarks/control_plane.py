"""Control plane throughput: Jobs whose Pods end at once on the simulated node."""

import time
from collections.abc import Sequence

from onejob.benchmarks.counting import since
from onejob.benchmarks.plane import a_job, a_plane, completions, run_like_a_server
from onejob.benchmarks.results import Cost, Measurement
from onejob.benchmarks.usage import cpu_seconds, peak_rss_mb
from onejob.client.base import Create
from onejob.wire.errors import ApiError


def one_job(*, completions: int, parallelism: int, indexed: int = 0) -> Measurement:
    job = a_job("giant", completions=completions, parallelism=parallelism, indexed=bool(indexed))
    return run_like_a_server(_work_off([job], ["giant"], pods=completions))


def many_jobs(*, jobs: int, completions: int, parallelism: int) -> Measurement:
    names = [f"job-{number}" for number in range(jobs)]
    ops = [a_job(name, completions=completions, parallelism=parallelism) for name in names]
    return run_like_a_server(_work_off(ops, names, pods=jobs * completions))


def kep_2214_mix(*, large: int, medium: int, small: int, scale: int, indexed: int) -> Measurement:
    """Measure the mix of KEP-2214's load test: Jobs of 400, 20 and 5 Pods.

    All Pods of a Job run at once. Sizes are divided by `scale`, for a quick run.
    """
    ops: list[Create] = []
    names: list[str] = []
    pods = 0
    for kind, count, size in (("large", large, 400), ("medium", medium, 20), ("small", small, 5)):
        size = max(size // scale, 1)
        for number in range(count):
            names.append(f"{kind}-{number}")
            ops.append(a_job(names[-1], completions=size, parallelism=size, indexed=bool(indexed)))
            pods += size
    return run_like_a_server(_work_off(ops, names, pods=pods))


async def _work_off(jobs: Sequence[Create], names: Sequence[str], *, pods: int) -> Measurement:
    async with a_plane() as measured, completions(measured) as seen:
        before, cpu, start = measured.operations(), cpu_seconds(), time.perf_counter()
        for result in await measured.client.write_many(jobs):
            if isinstance(result, ApiError):
                raise result
        seconds = await seen.of_all(names) - start
        cpu = cpu_seconds() - cpu
        counts = since(before, measured.operations())
    return Measurement(
        {"pods/s": pods / seconds, "seconds": seconds},
        Cost(pods, cpu, peak_rss_mb(), counts),
    )
