"""Benchmark of one user's latency while another user floods the server.

    python -m tests.e2e.fairness [--seconds 5] [--connections 64]

A real `onejob serve` without a node; alice and bob are two users with tokens. Each line is one kind
of flood by alice, and the milliseconds that bob's sequential GETs of a small ConfigMap take
meanwhile. The clients are processes of their own. To compare, run it with the sources of another
revision first on PYTHONPATH.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import yaml

_MAPS = "/api/v1/namespaces/default/configmaps"
_OBJECTS = 2000


class _User:
    """Server address and token of a kubeconfig."""

    def __init__(self, path: Path) -> None:
        config = yaml.safe_load(path.read_text())
        self.url = config["clusters"][0]["cluster"]["server"]
        self.token = config["users"][0]["user"]["token"]

    def session(self, connections: int = 1) -> aiohttp.ClientSession:
        tls = ssl.create_default_context()
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        return aiohttp.ClientSession(
            self.url,
            headers={"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"},
            connector=aiohttp.TCPConnector(limit=connections, ssl=tls),
        )


async def _list(session: aiohttp.ClientSession) -> int:
    async with session.get(_MAPS) as answer:
        await answer.read()
        return answer.status


async def _create(session: aiohttp.ClientSession) -> int:
    body = json.dumps({"metadata": {"generateName": "flood-"}, "data": {"k": "v"}})
    async with session.post(_MAPS, data=body) as answer:
        await answer.read()
        return answer.status


async def _get(session: aiohttp.ClientSession) -> int:
    async with session.get(f"{_MAPS}/small") as answer:
        await answer.read()
        return answer.status


_FLOODS: dict[str, Callable[[aiohttp.ClientSession], Awaitable[int]]] = {
    "lists": _list,
    "creates": _create,
    "gets": _get,
}


def _flood(kubeconfig: Path, kind: str, connections: int, begun: Any, end: Any, done: Any) -> None:
    async def count_codes() -> dict[int, int]:
        codes: dict[int, int] = {}

        async def one(session: aiohttp.ClientSession) -> None:
            while not end.is_set():
                code = await _FLOODS[kind](session)
                codes[code] = codes.get(code, 0) + 1
                if sum(codes.values()) > connections:
                    begun.set()
                if code == 429:
                    await asyncio.sleep(1)

        async with _User(kubeconfig).session(connections) as session:
            await asyncio.gather(*(one(session) for _ in range(connections)))
        return codes

    done.put(asyncio.run(count_codes()))


async def _measure(user: _User, seconds: float) -> list[float]:
    took: list[float] = []
    async with user.session() as session:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            start = time.perf_counter()
            assert await _get(session) == 200
            took.append(1000 * (time.perf_counter() - start))
            await asyncio.sleep(0.02)
    return took


async def _prepare(user: _User) -> None:
    async with user.session(16) as session:
        names = iter(["small", *(f"m{number}" for number in range(_OBJECTS))])

        async def fill() -> None:
            for name in names:
                body = json.dumps({"metadata": {"name": name}, "data": {"k": "v" * 200}})
                async with session.post(_MAPS, data=body) as answer:
                    assert answer.status == 201, await answer.text()

        await asyncio.gather(*(fill() for _ in range(16)))


def _report(what: str, took: list[float], flood: str = "") -> None:
    took.sort()
    p99 = took[min(len(took) - 1, int(len(took) * 0.99))]
    median = statistics.median(took)
    print(
        f"{what:10} p50 {median:7.1f}  p99 {p99:7.1f}  max {took[-1]:7.1f} ms  {flood}", flush=True
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--connections", type=int, default=64)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        data = ["--data-dir", folder]
        serve = [sys.executable, "-m", "onejob", "serve", *data, "--no-node"]
        with (place / "log").open("w") as log:
            server = subprocess.Popen(
                [*serve, "--listen", "127.0.0.1:0"], stdout=log, stderr=log, env=os.environ
            )
        try:
            _run(place, data, options)
        finally:
            server.terminate()
            server.wait(60)


def _run(place: Path, data: list[str], options: argparse.Namespace) -> None:
    for _ in range(600):
        if " serves " in (place / "log").read_text():
            break
        time.sleep(0.1)
    users = {}
    for name in ("alice", "bob"):
        path = place / f"{name}.kubeconfig"
        command = [sys.executable, "-m", "onejob", "user", "add", name, "--role", "edit"]
        subprocess.run(
            [*command, "-n", "default", *data, "--kubeconfig-out", str(path)],
            check=True,
            capture_output=True,
        )
        users[name] = path
    bob = _User(users["bob"])
    asyncio.run(_prepare(_User(users["alice"])))
    _report("alone", asyncio.run(_measure(bob, 2)))
    context = multiprocessing.get_context("spawn")
    for kind in _FLOODS:
        done, begun, end = context.Queue(), context.Event(), context.Event()
        arguments = (users["alice"], kind, options.connections, begun, end, done)
        flood = context.Process(target=_flood, args=arguments)
        flood.start()
        begun.wait(60)
        took = asyncio.run(_measure(bob, options.seconds))
        end.set()
        codes = done.get()
        flood.join()
        _report(kind, took, f"alice: {codes}")


if __name__ == "__main__":
    main()
