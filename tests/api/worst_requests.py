"""The requests that cost a server most, and what everybody else notices of each.

    python -m tests.api.worst_requests [--only TEXT] [--rounds 3] [--objects 10000]

Starts a real `onejob serve`, sends one request after the other, and meanwhile a tiny GET again and
again from another process. The table shows the longest wait for a tiny GET beside each request,
the answer's code and size, the time it took and the server's peak memory. Timings depend on the
machine, so this is run by hand; `tests/api/test_bounds.py` holds the structure in the suite.
"""

import argparse
import http.client
import json
import multiprocessing
import ssl
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from tests.api.worst_cases import (
    CONFIGMAPS,
    CRONJOBS,
    JOBS,
    JSON,
    PODS,
    Case,
    cases,
    configmap,
    cronjob,
    encoded,
    job,
    pod,
)
from tests.e2e.serving import Server, a_server

TINY = "/api/v1/namespaces/default"

#: After an answer the server may still work on what was asked: the prober watches this long.
_SETTLING_SECONDS = 0.5
#: A second without requests between two, so that each begins with an idle server.
_PAUSE_SECONDS = 0.2


class Api:
    def __init__(self, server: Server) -> None:
        config = yaml.safe_load(server.kubeconfig.read_text())
        address = urlsplit(config["clusters"][0]["cluster"]["server"])
        self.host, self.port = address.hostname or "", address.port
        self.token = config["users"][0]["user"]["token"]

    def connect(self, timeout: float = 120) -> http.client.HTTPSConnection:
        context = ssl._create_unverified_context()
        return http.client.HTTPSConnection(self.host, self.port, timeout=timeout, context=context)

    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}", "User-Agent": "worst/1"}

    def request(
        self, method: str, path: str, body: bytes = b"", **headers: str
    ) -> tuple[int, bytes]:
        connection = self.connect()
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body or None, {**self.headers(), **named})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


# --- what is there before ---------------------------------------------------------------------


def prepare(api: Api, objects: int) -> None:
    def create(path: str, document: dict[str, Any], name: str) -> None:
        named = {**document, "metadata": {**document["metadata"], "name": name}}
        code, answer = api.request("POST", path, encoded(named), Content_Type=JSON)
        assert code == 201, answer[:500]

    create(PODS, pod(), "patched")
    create(CONFIGMAPS, configmap({"a": "b"}), "patched")
    create(CONFIGMAPS, configmap({f"k{n}": "v" * 20 for n in range(20_000)}), "large")
    create(CRONJOBS, cronjob("* * * * *", suspend=False), "every-minute")
    create(JOBS, job(completionMode="Indexed", completions=10**6, parallelism=1), "indexed")
    talkers = {
        "talker": f"yes {'x' * 100} | head -n 300000",
        "empty-lines": "yes '' | head -c 1000000",
        "one-line": "head -c 9000000 /dev/zero | tr '\\0' x",
    }
    for name, script in talkers.items():
        container = {"name": "c", "image": "busybox", "command": ["sh", "-c", script]}
        spec = {"containers": [container], "restartPolicy": "Never", "schedulingGates": []}
        create(PODS, pod(**spec), name)
    for name in talkers:
        _await_end(api, name)
    _create_many(api, objects)


def _await_end(api: Api, name: str) -> None:
    for _ in range(600):
        status = json.loads(api.request("GET", f"{PODS}/{name}")[1])["status"]
        if status.get("phase") in ("Succeeded", "Failed"):
            assert status["phase"] == "Succeeded", status
            return
        time.sleep(0.1)
    raise AssertionError(f"{name} did not end")


def _create_many(api: Api, objects: int) -> None:
    def some(count: int) -> None:
        connection = api.connect()
        body = encoded(pod())
        for _ in range(count):
            connection.request("POST", PODS, body, {**api.headers(), "Content-Type": JSON})
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 201
        connection.close()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(some, [objects // 4] * 4))


# --- measuring --------------------------------------------------------------------------------


class Prober:
    """Sends a tiny GET again and again, in a process of its own."""

    def __init__(self, api: Api) -> None:
        context = multiprocessing.get_context("spawn")
        self._ours, theirs = context.Pipe()
        self._process = context.Process(target=_probe, args=(api, theirs), daemon=True)
        self._process.start()
        self._ours.recv()

    def longest_since(self, start: float) -> float:
        """Seconds of the longest wait that ended, or went on, after `start`."""
        self._ours.send(start)
        longest: float = self._ours.recv()
        return longest

    def stop(self) -> None:
        self._process.kill()
        self._process.join()


def _probe(api: Api, pipe: Connection) -> None:
    connection = api.connect(timeout=600)
    headers = api.headers()
    waits: list[tuple[float, float]] = []
    ready = False
    while True:
        begun = time.monotonic()
        connection.request("GET", TINY, headers=headers)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200
        ended = time.monotonic()
        waits.append((ended, ended - begun))
        if not ready:
            pipe.send("ready")
            ready = True
        if pipe.poll(0.001):
            since = pipe.recv()
            pipe.send(max((wait for end, wait in waits if end >= since), default=0.0))
            waits.clear()


@dataclass
class Measured:
    name: str
    code: int
    answer_bytes: int
    seconds: float
    longest_wait: float
    peak_mb: int


def measure(api: Api, prober: Prober, pid: int, case: Case) -> Measured:
    body = case.body()
    connection = api.connect(timeout=300)
    connection.connect()
    time.sleep(_PAUSE_SECONDS)
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    headers = {**api.headers(), "Content-Type": case.content_type, **case.headers}
    begun = time.monotonic()
    code, size = 0, 0
    try:
        connection.request(case.method, case.path, body or None, headers)
        answer = connection.getresponse()
        code = answer.status
        if case.read_seconds:
            connection.sock.settimeout(case.read_seconds)
        for piece in iter(lambda: answer.read1(1 << 20), b""):
            size += len(piece)
    except OSError as error:
        if not case.read_seconds:
            print(f"{case.name}: {error}", file=sys.stderr)
    finally:
        connection.close()
    ended = time.monotonic()
    time.sleep(_SETTLING_SECONDS)
    longest = prober.longest_since(begun)
    return Measured(case.name, code, size, ended - begun, longest, _peak_mb(pid))


def _peak_mb(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) // 1024
    return 0


def _show(found: Measured) -> None:
    print(
        f"{found.name:44} {found.code:>4} {found.answer_bytes:>10} {found.seconds:>7.2f}s "
        f"{found.longest_wait * 1000:>9.0f} ms {found.peak_mb:>5} MB",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="part of a request's name")
    parser.add_argument("--rounds", type=int, default=1, help="show the best of so many")
    parser.add_argument("--objects", type=int, default=10_000, help="Pods to list")
    options = parser.parse_args()
    chosen = [case for case in cases() if options.only.lower() in case.name.lower()]
    assert all(a.name != b.name for a, b in pairwise(chosen))
    with tempfile.TemporaryDirectory() as folder, a_server(Path(folder) / "data") as server:
        assert server.process is not None
        api = Api(server)
        prepare(api, options.objects)
        prober = Prober(api)
        try:
            time.sleep(1)
            idle = prober.longest_since(0)
            print(f"longest wait with no other request: {idle * 1000:.0f} ms")
            print(f"{'request':44} code {'answer':>10}     took longest wait     peak")
            for case in chosen:
                rounds = [
                    measure(api, prober, server.process.pid, case)
                    for _ in range(1 if case.once else options.rounds)
                ]
                # Whatever else runs on the machine only adds to what is waited for.
                _show(min(rounds, key=lambda measured: measured.longest_wait))
        finally:
            prober.stop()
        errors = [line for line in server.log.splitlines() if "Traceback" in line]
        print(f"tracebacks in the server's log: {len(errors)}")


if __name__ == "__main__":
    main()
