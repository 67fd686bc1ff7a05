"""Many daily CronJobs over a long time: `python -m tests.controllers.cron_soak --days 365`.

The whole control plane runs in virtual time, with a node that ends every Pod after a second.
Every slot must have run exactly once, and the server must be no bigger at the end than early on.
"""

import argparse
import asyncio
import gc
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from onejob.client.base import Create
from onejob.objects.job import Job
from onejob.objects.meta import CRONJOBS, EVENTS, JOBS, NODES, PODS
from onejob.virtual_time import run_virtual
from tests.controllers.housekeeping import TEMPLATE, House, a_house

DAY_SECONDS = 86400.0
#: Where the scripted node binds its Pods.
_NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node"}}
HISTORY = 3


@dataclass(frozen=True, slots=True)
class Sizes:
    """How big the server is at some time."""

    day: int
    objects: int
    database_bytes: int
    remembered: int
    python_objects: int


@dataclass
class Report:
    #: How often each Job name was created.
    runs: dict[str, int] = field(default_factory=dict)
    finished: set[str] = field(default_factory=set)
    sizes: list[Sizes] = field(default_factory=list)


async def soak(folder: Path, cronjobs: int, days: int, *, talks: bool = False) -> Report:
    report = Report()
    everything = ("cronjobs", "ttl", "garbage", "pod_gc", "namespaces", "events", "jobs")
    async with a_house(folder, *everything, script=lambda pod: 0) as house:
        house.informers.jobs.on_change(lambda deltas: _count(report, deltas))
        await house.create(NODES, _NODE, "")
        # Just after noon, so that no slot falls on the very end of a day.
        await asyncio.sleep(10)
        await house.client.write_many(
            [Create(CRONJOBS, "default", _cronjob(number)) for number in range(cronjobs)]
        )
        for day in range(1, days + 1):
            await asyncio.sleep(DAY_SECONDS)
            report.sizes.append(_measure(house, folder, day))
            if talks:
                print(f"{time.process_time():8.1f} s CPU", report.sizes[-1], flush=True)
    return report


def _cronjob(number: int) -> bytes:
    """Half of them all at midnight, the others at a time of their own."""
    schedule = "@daily" if number % 2 else f"{number % 60} {number % 24} * * *"
    document = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": f"cj-{number}"},
        "spec": {
            "schedule": schedule,
            "successfulJobsHistoryLimit": HISTORY,
            "jobTemplate": {"spec": {"template": TEMPLATE}},
        },
    }
    return msgspec.json.encode(document)


def _count(report: Report, deltas: Sequence[Any]) -> None:
    for delta in deltas:
        name = delta.key.name
        if delta.old is None:
            report.runs[name] = report.runs.get(name, 0) + 1
        if isinstance(delta.new, Job) and delta.new.condition_is_true("Complete"):
            report.finished.add(name)


def _measure(house: House, folder: Path, day: int) -> Sizes:
    objects = sum(house.cluster.store.count(name) for name in (JOBS, PODS, EVENTS, CRONJOBS))
    database_bytes = sum(path.stat().st_size for path in folder.glob("onejob.db*"))
    assert house.garbage is not None
    assert house.events is not None
    assert house.pod_gc is not None
    remembered = len(house.garbage) + len(house.events) + len(house.pod_gc)
    gc.collect()
    return Sizes(day, objects, database_bytes, remembered, len(gc.get_objects()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cronjobs", type=int, default=1000)
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--folder", help="where to put the database; a memory disk is faster")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        report = run_virtual(soak(Path(folder), options.cronjobs, options.days, talks=True))
    expected = options.cronjobs * options.days
    once = sum(count == 1 for count in report.runs.values())
    print(f"{expected} runs expected, {once} Jobs created once, {len(report.finished)} completed")
    return 0 if expected == once == len(report.runs) == len(report.finished) else 1


if __name__ == "__main__":
    sys.exit(main())
