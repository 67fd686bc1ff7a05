"""CronJob burst: many CronJobs that are due at the same full minute."""

import asyncio
import time
from datetime import datetime, timedelta

import msgspec

from onejob.benchmarks.plane import NAMESPACE, a_plane, completions, run_like_a_server
from onejob.benchmarks.results import Cost, Measurement, percentile
from onejob.benchmarks.usage import cpu_seconds, peak_rss_mb
from onejob.client.base import Create
from onejob.clock import SystemClock
from onejob.objects.meta import CRONJOBS
from onejob.wire.errors import ApiError


def same_minute(*, cronjobs: int) -> Measurement:
    """Measure from the full minute to each Job seen Complete, on the simulated node."""
    return run_like_a_server(_same_minute(cronjobs))


async def _same_minute(cronjobs: int) -> Measurement:
    # Enough time to create all of them before the full minute.
    ahead_seconds = 1.0 + cronjobs / 200
    clock = _SoonFullMinute(ahead_seconds)
    async with a_plane(clock=clock) as measured, completions(measured) as seen:
        cpu = cpu_seconds()
        for result in await measured.client.write_many([_a_cronjob(n) for n in range(cronjobs)]):
            if isinstance(result, ApiError):
                raise result
        if time.monotonic() >= clock.full_minute_at:
            raise RuntimeError("the full minute came before all CronJobs were there")
        await asyncio.sleep(clock.full_minute_at - time.monotonic())
        due = time.perf_counter()
        late = [at - due for at in await seen.first(cronjobs)]
        cost = Cost(cronjobs, cpu_seconds() - cpu, peak_rss_mb())
    return Measurement({"p50, s": percentile(late, 50), "last, s": max(late)}, cost)


class _SoonFullMinute:
    """System clock with an offset such that a full minute comes soon."""

    def __init__(self, ahead_seconds: float) -> None:
        self._system = SystemClock()
        self.full_minute_at = self._system.monotonic() + ahead_seconds
        now = self._system.now()
        into_the_minute = timedelta(seconds=now.second, microseconds=now.microsecond)
        self._offset = timedelta(minutes=1) - into_the_minute - timedelta(seconds=ahead_seconds)

    def now(self) -> datetime:
        return self._system.now() + self._offset

    def monotonic(self) -> float:
        return self._system.monotonic()


def _a_cronjob(number: int) -> Create:
    pod = {
        "restartPolicy": "Never",
        "containers": [{"name": "main", "image": "none", "command": ["/bin/true"]}],
    }
    document = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": f"cron-{number}"},
        # Every minute, so that the first full minute triggers it.
        "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": {"spec": pod}}}},
    }
    return Create(CRONJOBS, NAMESPACE, msgspec.json.encode(document))
