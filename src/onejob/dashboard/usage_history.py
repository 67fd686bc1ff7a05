"""CPU and memory usage of Pods over time, sampled while the dashboard is in use.

Nothing is sampled without requests, so a server whose dashboard nobody opens pays nothing. The
history of a Pod covers its whole life since sampling began: when it is full, every other sample is
dropped, and the following ones are taken half as often.
"""

import asyncio
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final

import msgspec

from onejob.api.usage import Measurement, UsageSource
from onejob.clock import Clock
from onejob.informers.cache import Cache
from onejob.objects.meta import Key
from onejob.objects.pod import Pod

#: Seconds between two samples.
INTERVAL_SECONDS: Final = 5.0
#: Seconds for which sampling continues after the last request.
IDLE_SECONDS: Final = 600.0
MAX_SAMPLES: Final = 240
#: Pods whose history is kept; those that were sampled longest ago make room.
_MAX_PODS: Final = 500
#: Pods in a response, those with the most memory.
_MAX_SHOWN: Final = 12


class PodUsage(msgspec.Struct, frozen=True, rename="camel"):
    """Samples of a Pod, all of the same length, the oldest first."""

    name: str
    times: list[datetime]
    #: CPU usage in cores.
    cpu: list[float]
    memory_bytes: list[int]


class _History:
    """Samples of one Pod."""

    def __init__(self, pod: Pod) -> None:
        self.key = pod.key
        owner = pod.metadata.controller_ref
        self.owner = "" if owner is None else owner.uid
        self.usage = PodUsage(pod.metadata.name, [], [], [])
        #: Only every so many measurements are kept.
        self._every = 1
        self._measured = 0

    def add(self, measurement: Measurement) -> None:
        self._measured += 1
        if self._measured % self._every:
            return
        usage = self.usage
        usage.times.append(measurement.at)
        usage.cpu.append(sum(one.cpu_nanocores for one in measurement.usage.values()) / 1e9)
        usage.memory_bytes.append(sum(one.memory_bytes for one in measurement.usage.values()))
        if len(usage.times) >= MAX_SAMPLES:
            for samples in (usage.times, usage.cpu, usage.memory_bytes):
                del samples[::2]
            self._every *= 2


class UsageHistory:
    """Usage of Pods over time; `stop` ends the sampling."""

    def __init__(self, source: UsageSource | None, pods: Cache[Pod], clock: Clock) -> None:
        """`source` is None on a server without a node; `pods` contains the Pods not yet ended."""
        self._source = source
        self._pods = pods
        self._clock = clock
        #: By UID of the Pod, those sampled longest ago first.
        self._histories: dict[str, _History] = {}
        self._used_at = 0.0
        self._sampling: asyncio.Task[None] | None = None

    def note_use(self) -> None:
        """Start sampling, or continue it for a while."""
        self._used_at = self._clock.monotonic()
        if self._source is not None and (self._sampling is None or self._sampling.done()):
            self._sampling = asyncio.create_task(self._sample_while_used(self._source))

    def of_pod(self, key: Key) -> list[PodUsage]:
        """Return the samples of a Pod; [] if there are none."""
        return self._found(lambda history: history.key == key)

    def of_owner(self, namespace: str, uid: str) -> list[PodUsage]:
        """Return the samples of the Pods of a controller with the most memory, at most a dozen."""
        return self._found(
            lambda history: history.owner == uid and history.key.namespace == namespace
        )

    async def stop(self) -> None:
        if self._sampling is not None:
            self._sampling.cancel()
            await asyncio.wait([self._sampling])

    def _found(self, wanted: Callable[[_History], bool]) -> list[PodUsage]:
        found = [history.usage for history in self._histories.values() if wanted(history)]
        found.sort(key=lambda usage: -max(usage.memory_bytes, default=0))
        return found[:_MAX_SHOWN]

    async def _sample_while_used(self, source: UsageSource) -> None:
        while self._clock.monotonic() - self._used_at < IDLE_SECONDS:
            self._add((await source.pods()).items())
            await asyncio.sleep(INTERVAL_SECONDS)

    def _add(self, measured: Iterable[tuple[str, Measurement]]) -> None:
        found = dict(measured)
        unknown = found.keys() - self._histories.keys()
        known = {pod.metadata.uid: pod for pod in self._pods if pod.metadata.uid in unknown}
        for uid, measurement in found.items():
            history = self._histories.pop(uid, None)
            if history is None:
                if uid not in known:
                    # It has ended meanwhile.
                    continue
                history = _History(known[uid])
            history.add(measurement)
            self._histories[uid] = history
        while len(self._histories) > _MAX_PODS:
            del self._histories[next(iter(self._histories))]
