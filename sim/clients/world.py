"""Simulation of one seed: writers, callers and informers of a server, until caches are current."""

import asyncio
from collections.abc import Collection, Coroutine
from contextlib import ExitStack
from functools import partial
from random import Random
from typing import Any

from onejob.api.service import Service
from onejob.client import naming
from onejob.client.base import Client, Selection
from onejob.client.http import HttpClient
from onejob.client.local import LocalClient
from onejob.informers.informer import Informer
from onejob.informers.shared import _index_pod, _may_need_action
from onejob.objects.meta import PODS
from onejob.objects.pod import Pod, read_pod
from onejob.virtual_time import virtual_clock
from sim.api import FaultyClient
from sim.clients.caches import CacheCheck, look_often
from sim.clients.callers import CONFIG_MAPS, Caller
from sim.clients.log import ServerLog
from sim.clients.writers import Writer
from sim.network.links import ORIGIN
from sim.network.server import connection_to, front
from sim.network.stage import Stage
from sim.rights import Rights
from sim.world import Verdict

_HOST = "api.example.com"
_MAX_RUN_SECONDS = 60.0
_REST_SECONDS = 120.0
_REQUEST_SECONDS = 8.0
_CALLERS = 3
_PAGE = 3
_WATCH_FAULTS = (
    "late watch", "split watch", "broken watch", "expired watch", "right taken away",
)  # fmt: skip


def simulate(seed: int, often: Collection[str] = ()) -> Verdict:
    """Simulate the world of a seed and return the verdict."""
    stage = Stage(seed, often, _WATCH_FAULTS)
    with ExitStack() as undo:
        # Few possible names, so that two clients sometimes generate the same one.
        for name, value in (("_ALPHABET", "bcdf"), ("_RANDOM_LENGTH", 2)):
            undo.callback(setattr, naming, name, getattr(naming, name))
            setattr(naming, name, value)
        stage.run(partial(_live, stage))
    return stage.verdict()


async def _live(stage: Stage) -> None:
    clock = virtual_clock()
    made: list[FaultyClient] = []

    def make_client(service: Service) -> FaultyClient:
        rights = Rights(stage.dice)
        made.append(FaultyClient(service, stage.dice, rights, lambda *_: None))
        return made[0]

    plane = await stage.open_plane("server", clock, controllers=frozenset(), client=make_client)
    server = ServerLog()
    tasks = server.follow(plane.store, PODS, CONFIG_MAPS)
    await asyncio.sleep(0)
    stage.network.listeners[_HOST] = front(plane, Random(f"{stage.seed} front"))
    settled: set[str] = set()
    callers = [_caller(stage, server, number, settled) for number in range(_CALLERS)]
    for caller in callers:
        stage.network.on_arrival.append(caller.see_arrival)
    checks = [
        CacheCheck("in process", _informer(made[0]), server, stage.problems),
        CacheCheck("over HTTP", _informer(_http_client(stage, "informer")), server, stage.problems),
    ]
    stage.disturb()
    made[0].reliable = False
    for number, check in enumerate(checks):
        tasks.append(_start_on(f"informer-{number}", check.informer.run()))
    until = stage.rng.uniform(0.3, 1.0) * _MAX_RUN_SECONDS
    writer = Writer(stage.seed, LocalClient(plane.service), stage.trace)
    working = [_start_on(f"caller-{n}", caller.run(until)) for n, caller in enumerate(callers)]
    working.append(asyncio.create_task(writer.run(until, checks)))
    working.append(asyncio.create_task(look_often(checks, until)))
    await asyncio.sleep(until)
    stage.calm()
    await asyncio.gather(*working)
    await asyncio.sleep(_REST_SECONDS)
    for caller in callers:
        caller.see_the_end()
    for check in checks:
        check.see_the_end()
    _see_ended(stage, tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await plane.stop()


def _see_ended(stage: Stage, tasks: list["asyncio.Task[None]"]) -> None:
    for task in tasks:
        if task.done():
            stage.problems.add("keeps running", f"{task.get_coro()} ended: {task.exception()!r}")


def _start_on(host: str, part: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
    """Start a task on a host of its own: partitions cut off single hosts."""
    token = ORIGIN.set(host)
    try:
        return asyncio.create_task(part)
    finally:
        ORIGIN.reset(token)


def _http_client(stage: Stage, name: str) -> HttpClient:
    rng = Random(f"{stage.seed} {name}")
    return HttpClient(connection_to(_HOST), rng=rng, request_seconds=_REQUEST_SECONDS)


def _caller(stage: Stage, server: ServerLog, number: int, settled: set[str]) -> Caller:
    client = _http_client(stage, f"caller {number}")
    return Caller(number, client, server, stage.problems, stage.trace, settled)


def _informer(client: Client) -> Informer[Pod]:
    return Informer(
        client,
        Selection(PODS),
        read_pod,
        lambda pod: pod.key,
        keep=_may_need_action,
        index_entries=_index_pod,
        page=_PAGE,
    )
