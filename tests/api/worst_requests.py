"""Benchmark of the most expensive requests and the delay that each causes for other clients.

    python -m tests.api.worst_requests [--only TEXT] [--rounds 3] [--objects 10000]

Starts a real `onejob serve`, sends one request after the other, and meanwhile a tiny GET repeatedly
from another process. The table shows the longest wait for a tiny GET during each request, the CPU
time that the event loop used during one such wait and in total, the response's code and size, its
duration and the server's peak memory. `--only attack` runs the multi-step attacks
(`worst_attacks`). Timings depend on the machine, so this is run by hand; `tests/api/test_bounds.py`
guards the structure in the suite.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.api.worst_attacks import Attack, attacks
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
from tests.api.worst_support import (
    Api,
    Prober,
    Waits,
    loop_cpu_seconds,
    peak_mb,
    reset_peak,
)
from tests.e2e.serving import Server, a_server

#: Seconds to keep probing after a response, as the server may still work on the request.
_SETTLING_SECONDS = 0.5
#: Pause before each request, so that it begins with an idle server.
_PAUSE_SECONDS = 0.2


# --- existing objects -------------------------------------------------------------------------


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


@dataclass
class Measured:
    name: str
    code: int
    answer_bytes: int
    seconds: float
    waits: Waits
    #: CPU time of the event loop's thread, including the tiny GETs.
    loop_seconds: float
    peak_mb: int
    remark: str = ""


def measure(api: Api, prober: Prober, pid: int, case: Case) -> Measured:
    body = case.body()
    connection = api.connect(timeout=300)
    connection.connect()
    time.sleep(_PAUSE_SECONDS)
    reset_peak(pid)
    used = loop_cpu_seconds(pid)
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
    waits = prober.longest_since(begun)
    used = loop_cpu_seconds(pid) - used
    return Measured(case.name, code, size, ended - begun, waits, used, peak_mb(pid))


def measure_attack(attack: Attack) -> Measured:
    with measured_server() as (server, api, pid):
        prober = Prober(api, pid)
        try:
            time.sleep(1)
            reset_peak(pid)
            used, begun = loop_cpu_seconds(pid), time.monotonic()
            remark = attack.run(api)
            ended = time.monotonic()
            time.sleep(_SETTLING_SECONDS)
            waits = prober.longest_since(begun)
        finally:
            prober.stop()
        used = loop_cpu_seconds(pid) - used
        if "Traceback" in server.log:
            remark += "; the log has a traceback"
        return Measured(attack.name, 0, 0, ended - begun, waits, used, peak_mb(pid), remark)


@contextmanager
def measured_server() -> Iterator[tuple[Server, Api, int]]:
    temporary = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    with temporary as folder, a_server(Path(folder) / "data") as server:
        assert server.process is not None
        yield server, Api.of(server), server.process.pid


def _show_best(rounds: Sequence[Measured]) -> None:
    """Show the round with the shortest wait: other load on the machine only adds to waits."""
    _show(min(rounds, key=lambda measured: measured.waits.longest))


def _show(found: Measured) -> None:
    print(
        f"{found.name:44} {found.code:>4} {found.answer_bytes:>10} {found.seconds:>7.2f}s "
        f"{found.waits.longest * 1000:>9.0f} ms {found.waits.loop_cpu * 1000:>7.0f} ms "
        f"{found.loop_seconds:>6.2f}s {found.peak_mb:>5} MB  {found.remark}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="part of a request's name")
    parser.add_argument("--rounds", type=int, default=1, help="show the best of so many")
    parser.add_argument("--objects", type=int, default=10_000, help="Pods to list")
    options = parser.parse_args()
    wanted = options.only.lower()
    requests = [case for case in cases() if wanted in case.name.lower()]
    assert all(a.name != b.name for a, b in pairwise(requests))
    print(f"{'request':44} code {'answer':>10}     took longest wait    of loop    loop     peak")
    if requests:
        measure_requests(requests, options.rounds, options.objects)
    for attack in attacks():
        if wanted in attack.name.lower():
            _show_best([measure_attack(attack) for _ in range(options.rounds)])


def measure_requests(requests: Sequence[Case], rounds: int, objects: int) -> None:
    with measured_server() as (server, api, pid):
        prepare(api, objects)
        prober = Prober(api, pid)
        try:
            time.sleep(1)
            idle = prober.longest_since(0).longest
            print(f"longest wait with no other request: {idle * 1000:.0f} ms")
            for case in requests:
                times = 1 if case.once else rounds
                _show_best([measure(api, prober, pid, case) for _ in range(times)])
        finally:
            prober.stop()
        errors = [line for line in server.log.splitlines() if "Traceback" in line]
        print(f"tracebacks in the server's log: {len(errors)}")


if __name__ == "__main__":
    main()
