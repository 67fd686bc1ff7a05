"""Client of a measured server, and a probe of the latency of other clients under load."""

import http.client
import multiprocessing
import ssl
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import yaml

from tests.e2e.serving import Server

TINY = "/api/v1/namespaces/default"


class Api:
    """HTTP client of one server as its administrator, or as `user` by impersonation."""

    def __init__(self, address: str, token: str, user: str = "") -> None:
        self._address, self._token, self._user = address, token, user

    @classmethod
    def of(cls, server: Server) -> "Api":
        config = yaml.safe_load(server.kubeconfig.read_text())
        address = config["clusters"][0]["cluster"]["server"]
        return cls(address, config["users"][0]["user"]["token"])

    def acting_as(self, user: str) -> "Api":
        return Api(self._address, self._token, user)

    def connect(self, timeout: float = 120) -> http.client.HTTPSConnection:
        context = ssl._create_unverified_context()
        place = urlsplit(self._address)
        return http.client.HTTPSConnection(
            place.hostname or "", place.port, timeout=timeout, context=context
        )

    def headers(self) -> dict[str, str]:
        acting = {"Impersonate-User": self._user} if self._user else {}
        return {"Authorization": f"Bearer {self._token}", "User-Agent": "worst/1", **acting}

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


class Waits(NamedTuple):
    """Longest wait for a tiny GET, in seconds, and the event loop's CPU time.

    `loop_cpu` is the most CPU time that the thread of the event loop used during one such wait. It
    does not depend on other load of the machine, but does not show waits for a lock that another
    thread of the server holds.
    """

    longest: float
    loop_cpu: float


class Prober:
    """Process that sends a tiny GET repeatedly."""

    def __init__(self, api: Api, pid: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._ours, theirs = context.Pipe()
        self._process = context.Process(target=_probe, args=(api, pid, theirs), daemon=True)
        self._process.start()
        self._ours.recv()

    def longest_since(self, start: float) -> Waits:
        """Return the longest wait that ended, or continued, after `start`."""
        self._ours.send(start)
        waits: Waits = self._ours.recv()
        return waits

    def stop(self) -> None:
        self._process.kill()
        self._process.join()


def _probe(api: Api, pid: int, pipe: Connection) -> None:
    connection = api.connect(timeout=600)
    headers = api.headers()
    waits: list[tuple[float, Waits]] = []
    ready = False
    while True:
        begun, used = time.monotonic(), loop_cpu_seconds(pid)
        connection.request("GET", TINY, headers=headers)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200
        ended = time.monotonic()
        waits.append((ended, Waits(ended - begun, loop_cpu_seconds(pid) - used)))
        if not ready:
            pipe.send("ready")
            ready = True
        if pipe.poll(0.001):
            since = pipe.recv()
            recent = [wait for end, wait in waits if end >= since] or [Waits(0.0, 0.0)]
            pipe.send(Waits(max(w.longest for w in recent), max(w.loop_cpu for w in recent)))
            waits.clear()


def loop_cpu_seconds(pid: int) -> float:
    """Return the CPU time of the main thread, which runs the event loop."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9


def reset_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def peak_mb(pid: int) -> int:
    """Return the peak resident memory since `reset_peak`."""
    return _status_mb(pid, "VmHWM")


def resident_mb(pid: int) -> int:
    return _status_mb(pid, "VmRSS")


def _status_mb(pid: int, field: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) // 1024
    return 0
