"""API throughput over HTTPS: `onejob serve` in one process, the clients in another."""

import asyncio
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from onejob.api.access.certificates import ensure_certificates, server_names
from onejob.benchmarks.load_client import Address, LoadConnection, address_of, per_second
from onejob.benchmarks.plane import run_like_a_server
from onejob.benchmarks.processes import onejob_command
from onejob.benchmarks.results import Cost, Measurement
from onejob.benchmarks.usage import cpu_seconds_of, descendants, peak_rss_mb, rss_mb
from onejob.benchmarks.used_nodes import record_node
from onejob.clock import SystemClock

_PODS = "/api/v1/namespaces/default/pods"
_READY_SECONDS = 30.0
_LOOK_SECONDS = 0.02


def by_onejob(*, alone: int, together: int, clients: int, watchers: int, lists: int) -> Measurement:
    """Measure `alone` creates by one client, then creates by `clients` until `together` Pods exist.

    Then measures gets, lists and watches of these Pods.
    """
    return run_like_a_server(_by_onejob(alone, together, clients, watchers, lists))


def by_a_bare_server(*, alone: int, together: int, clients: int) -> Measurement:
    """Measure TLS and HTTP with a prepared response: the limit."""
    return run_like_a_server(_by_a_bare_server(alone, together, clients))


def idle(*, settle_seconds: int, seconds: int) -> Measurement:
    """Measure memory and CPU of an idle server."""
    return run_like_a_server(_idle(settle_seconds, seconds))


def idle_bare_server() -> Measurement:
    return run_like_a_server(_idle_bare_server())


async def _by_onejob(
    alone: int, together: int, clients: int, watchers: int, lists: int
) -> Measurement:
    figures: dict[str, float] = {}
    async with a_server("simulated") as server:
        connections = await _connect(server.address, clients)
        cpu = cpu_seconds_of(server.pid)
        one = connections[:1]
        figures["creates/s, 1 client"], _ = await per_second(one, _creates("a", alone), code=201)
        figures[f"creates/s, {clients} clients"], _ = await per_second(
            connections, _creates("b", together - alone), code=201
        )
        cpu = cpu_seconds_of(server.pid) - cpu
        figures["gets/s, 1 client"], _ = await per_second(one, _gets("a", alone), code=200)
        figures[f"gets/s, {clients} clients"], _ = await per_second(
            connections, _gets("b", together - alone), code=200
        )
        start = time.perf_counter()
        for _ in range(lists):
            body = (await connections[0].ask("GET", _PODS)).body
        figures[f"list of {together:,}, ms"] = (time.perf_counter() - start) / lists * 1e3
        found = len(msgspec.json.decode(body, type=_List).items)
        assert found == together, f"{found} Pods were listed, {together} were created"
        figures[f"events/s to {watchers} watchers"] = await _fan_out(
            server.address, connections, watchers, alone
        )
        cost = Cost(together, cpu, peak_rss_mb(server.pid))
        for connection in connections:
            await connection.close()
    return Measurement(figures, cost)


class _List(msgspec.Struct):
    items: list[msgspec.Raw]


async def _fan_out(
    address: Address, connections: list[LoadConnection], watchers: int, changes: int
) -> float:
    """Return the events delivered per second while `changes` Pods are created.

    The time includes creating them.
    """
    listed = msgspec.json.decode((await connections[0].ask("GET", f"{_PODS}?limit=1")).body)
    target = f"{_PODS}?watch=1&resourceVersion={listed['metadata']['resourceVersion']}"
    watching = await _connect(address, watchers)
    start = time.perf_counter()
    following = [
        asyncio.create_task(connection.lines(target, lambda seen: seen >= changes))
        for connection in watching
    ]
    await per_second(connections, _creates("w", changes), code=201)
    await asyncio.gather(*following)
    seconds = time.perf_counter() - start
    for connection in watching:
        await connection.close()
    return watchers * changes / seconds


async def _by_a_bare_server(alone: int, together: int, clients: int) -> Measurement:
    figures: dict[str, float] = {}
    async with _a_bare_server() as server:
        connections = await _connect(server.address, clients)
        for verb, requests in (("creates", _creates), ("gets", _gets)):
            figures[f"{verb}/s, 1 client"], _ = await per_second(
                connections[:1], requests("a", alone), code=200
            )
            figures[f"{verb}/s, {clients} clients"], _ = await per_second(
                connections, requests("b", together - alone), code=200
            )
        for connection in connections:
            await connection.close()
    return Measurement(figures)


async def _idle(settle_seconds: int, seconds: int) -> Measurement:
    async with a_server() as server:
        await asyncio.sleep(settle_seconds)
        before = cpu_seconds_of(server.pid)
        await asyncio.sleep(seconds)
        used = cpu_seconds_of(server.pid) - before
        helpers = sum(rss_mb(pid) for pid in descendants(server.pid))
        own = rss_mb(server.pid)
    return Measurement(
        {"RSS, MB": own, "RSS with its helpers, MB": own + helpers, "CPU, %": used / seconds * 100}
    )


async def _idle_bare_server() -> Measurement:
    async with _a_bare_server() as server:
        return Measurement({"RSS, MB": rss_mb(server.pid)})


@dataclass(frozen=True, slots=True)
class Server:
    pid: int
    address: Address


@asynccontextmanager
async def a_server(
    runtime: str = "process", folder: Path | None = None, before: Sequence[str] = ()
) -> AsyncIterator[Server]:
    """Run `onejob serve` in its own process, ready for requests.

    Without a folder the state is temporary. No server may have used a given folder before: the
    creation of its kubeconfig signals readiness. `before` is a command prefix, which executes the
    server in place of itself.
    """
    with tempfile.TemporaryDirectory(prefix="onejob-bench-") as scratch:
        place = folder or Path(scratch)
        listen = ["--listen", "127.0.0.1:0", "--data-dir", str(place)]
        command = [*before, *onejob_command(), "serve", *listen]
        kubeconfig = place / "kubeconfig"
        async with _running([*command, "--runtime", record_node(runtime)], kubeconfig) as pid:
            yield Server(pid, address_of(kubeconfig))


@asynccontextmanager
async def _a_bare_server() -> AsyncIterator[Server]:
    with tempfile.TemporaryDirectory(prefix="onejob-bench-") as folder:
        place, host = Path(folder), "127.0.0.1"
        made = ensure_certificates(place, server_names(host), SystemClock().now())
        port = place / "port"
        command = [sys.executable, "-m", "onejob.benchmarks.bare_server"]
        async with _running(
            [*command, str(made.certificate), str(made.key), str(port)], port
        ) as pid:
            tls = ssl.create_default_context(cafile=made.authority)
            yield Server(pid, Address(host, int(port.read_text()), tls))


@asynccontextmanager
async def _running(command: list[str], ready: Path) -> AsyncIterator[int]:
    """Run a process that signals readiness by writing a file; yield its PID."""
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.DEVNULL)
    try:
        await asyncio.to_thread(_wait_for, ready)
        yield process.pid
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()


def _wait_for(file: Path) -> None:
    for _ in range(round(_READY_SECONDS / _LOOK_SECONDS)):
        if file.exists():
            return
        time.sleep(_LOOK_SECONDS)
    raise TimeoutError("the server did not get ready")


async def _connect(address: Address, count: int) -> list[LoadConnection]:
    connections = [LoadConnection(address) for _ in range(count)]
    for connection in connections:
        await connection.open()
    return connections


def _creates(prefix: str, count: int) -> Iterator[tuple[str, str, bytes]]:
    # No scheduler picks up these Pods, so that only the API is busy.
    spec = {
        "schedulerName": "nobody",
        "restartPolicy": "Never",
        "containers": [{"name": "main", "image": "none", "command": ["/bin/true"]}],
    }
    document = {"apiVersion": "v1", "kind": "Pod", "spec": spec}
    for number in range(count):
        metadata = {"name": f"{prefix}-{number}", "labels": {"app": "bench"}}
        yield "POST", _PODS, msgspec.json.encode({**document, "metadata": metadata})


def _gets(prefix: str, count: int) -> Iterator[tuple[str, str, bytes]]:
    for number in range(count):
        yield "GET", f"{_PODS}/{prefix}-{number}", b""
