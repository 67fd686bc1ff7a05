"""Job queue with real processes, which record their start and end."""

import asyncio
from pathlib import Path
from random import Random
from typing import Any

from onejob.client.base import Create
from onejob.control_plane import ControlPlane, Settings
from onejob.node.options import NodeOptions
from onejob.planning.queue.limits import parse_limits
from tests.build import a_job, creation, shell, template
from tests.queue.support import Releases, a_priority_class, create, until_finished


def a_process_job(name: str, script: str, priority: str = "") -> Create:
    prioritised: dict[str, Any] = {"priorityClassName": priority} if priority else {}
    return creation(a_job(name, template=template(shell(script), **prioritised)))


async def test_200_jobs_of_real_processes_are_let_go_in_exact_order(tmp_path: Path) -> None:
    """The operating system decides which of two Jobs released together runs first.

    So the order of releases is compared, and the processes show how many ran at once.
    """
    rng = Random(3)
    log, go = tmp_path / "log", tmp_path / "go"
    log.touch()
    priorities = {"low": -5, "high": 100, "urgent": 1000}
    chosen = [rng.choice(list(priorities)) for _ in range(200)]
    names = [f"job-{number:03}" for number in range(200)]
    plane = await ControlPlane.start(
        Settings(
            tmp_path / "state",
            NodeOptions(pods_end_with_server=True, capacity={"cpu": "1000", "pods": "1000"}),
            queue_limits=parse_limits(["*=5"]),
        )
    )
    try:
        releases = Releases(plane)
        await create(plane, *(a_priority_class(*one) for one in priorities.items()))
        first = f"until [ -e {go} ]; do sleep 0.05; done"
        await create(plane, *(a_process_job(f"first-{number}", first) for number in range(5)))
        script = f"echo + >> {log}; echo - >> {log}"
        await create(
            plane,
            *(
                a_process_job(name, script, priority)
                for name, priority in zip(names, chosen, strict=True)
            ),
        )
        await asyncio.wait_for(releases.suspended(200), 60)
        go.touch()
        await asyncio.wait_for(until_finished(plane), 120)
        order = releases.order
    finally:
        await plane.stop()
    expected = sorted(range(200), key=lambda number: (-priorities[chosen[number]], number))
    assert order == [names[number] for number in expected]
    running = most = 0
    for mark in log.read_text().split():
        running += 1 if mark == "+" else -1
        most = max(most, running)
    assert log.read_text().count("+") == 200
    assert most <= 5


async def test_one_at_a_time_processes_run_in_the_order_of_their_creation(tmp_path: Path) -> None:
    log = tmp_path / "log"
    plane = await ControlPlane.start(
        Settings(
            tmp_path / "state",
            NodeOptions(pods_end_with_server=True),
            queue_limits=parse_limits(["*=1"]),
        )
    )
    try:
        await create(
            plane,
            *(a_process_job(f"j{number}", f"echo {number} >> {log}") for number in range(12)),
        )
        await asyncio.wait_for(until_finished(plane), 60)
    finally:
        await plane.stop()
    assert log.read_text().split() == [str(number) for number in range(12)]
