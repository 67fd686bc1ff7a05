"""Probes over the network, and the consequences of a failing one."""

import asyncio
import errno
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from onejob.node.podman.engine import CLIENT_FAILED, Engine
from onejob.node.supervisor.pressure import PROCESSES
from tests.node.probes_support import a_free_port
from tests.node.support import Document, a_pod, a_process_node, shell, the_container

#: Responds with 200 below /ok and 503 elsewhere, on the given port.
SERVER = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        ok = self.path == "/ok" and self.headers["X-Probe"] == "yes"
        self.send_response(200 if ok else 503)
        self.end_headers()
    def log_message(self, *arguments):
        pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def a_web_server(port: int, **container: Any) -> Document:
    ports = [{"name": "web", "containerPort": port}]
    return a_pod(sys.executable, "-c", SERVER, str(port), ports=ports, **container)


@pytest.mark.parametrize("by", ["number", "name"])
async def test_a_container_is_ready_when_it_answers_over_http(tmp_path: Path, by: str) -> None:
    port = a_free_port()
    async with a_process_node(tmp_path) as node:
        get = {
            "path": "/ok",
            "port": port if by == "number" else "web",
            "httpHeaders": [{"name": "X-Probe", "value": "yes"}],
        }
        probe = {"httpGet": get, "periodSeconds": 1}
        await node.create(a_web_server(port, readinessProbe=probe))
        await node.until("p", _is_ready)


async def test_an_answer_that_is_an_error_is_no_readiness(tmp_path: Path) -> None:
    port = a_free_port()
    async with a_process_node(tmp_path) as node:
        probe = {"httpGet": {"path": "/broken", "port": port}, "periodSeconds": 1}
        await node.create(a_web_server(port, readinessProbe=probe))
        await node.until("p", lambda pod: pod["status"].get("phase") == "Running")
        async with asyncio.timeout(60):
            while not any("503" in message for _, message in await node.events("p")):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert not the_container(await node.pod("p"))["ready"]


async def test_a_container_is_ready_when_its_port_accepts(tmp_path: Path) -> None:
    port = a_free_port()
    async with a_process_node(tmp_path) as node:
        probe = {"tcpSocket": {"port": port}, "periodSeconds": 1}
        await node.create(a_web_server(port, readinessProbe=probe))
        await node.until("p", _is_ready)
        await node.create(shell("sleep 60", name="q", readinessProbe=_tcp(a_free_port())))
        await node.until("q", lambda pod: pod["status"].get("phase") == "Running")
        assert "Unhealthy" in {reason for reason, _ in await node.until_told("q")}
        assert not the_container(await node.pod("q"))["ready"]


async def test_a_container_that_fails_its_liveness_probe_is_restarted(tmp_path: Path) -> None:
    async with a_process_node(tmp_path) as node:
        probe = {**_tcp(a_free_port()), "failureThreshold": 1}
        pod = shell("exec sleep 60", policy="Always", livenessProbe=probe)
        pod["spec"]["terminationGracePeriodSeconds"] = 1
        await node.create(pod)
        restarted = await node.until(
            "p", lambda p: _has(p) and the_container(p)["restartCount"] == 1
        )
        assert the_container(restarted)["lastState"]["terminated"]["exitCode"] == 143


def _tcp(port: int) -> Document:
    return {"tcpSocket": {"port": port}, "periodSeconds": 1}


def _has(pod: Document) -> bool:
    return "containerStatuses" in pod["status"]


def _is_ready(pod: Document) -> bool:
    return _has(pod) and bool(the_container(pod)["ready"])


async def test_unstartable_engine_client_does_not_change_readiness(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_process(*_: object, **__: object) -> None:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(asyncio, "create_subprocess_exec", no_process)
    answer = await Engine(("podman",), tmp_path / "lock", "label=x").execute("c", ["true"])
    assert (answer.code, answer.pressure) == (CLIENT_FAILED, PROCESSES)
