"""Effect of each field of probes and of their actions, without processes."""

import asyncio
from typing import Any

import msgspec
import pytest

from onejob.clock import Clock
from onejob.node.probing.hooks import Hooks
from onejob.node.probing.probe_checks import check
from onejob.node.probing.probes import Prober
from onejob.node.probing.results import Probed
from onejob.node.runtime import AttemptRef, CommandResult
from onejob.node.simulated import SimulatedRuntime
from onejob.objects.pod_spec import NodePod, read_node_pod
from onejob.virtual_time import virtual_clock
from tests.node.probes_support import a_free_port
from tests.node.support import a_pod

REF = AttemptRef("u", "c", 0)


class AnsweringRuntime(SimulatedRuntime):
    """Runtime whose commands succeed as the letters of `script` say: `+` or `-`."""

    def __init__(self, clock: Clock, script: str) -> None:
        super().__init__(clock)
        self._time = clock
        self._script = script
        #: Time, command and timeout of each check.
        self.asked: list[tuple[float, str, float]] = []

    async def run_command(
        self, pod: NodePod, ref: AttemptRef, command: Any, timeout_seconds: float
    ) -> CommandResult:
        self.asked.append((self._time.monotonic(), *command, timeout_seconds))
        at = min(len(self.asked), len(self._script)) - 1
        return CommandResult(0 if self._script[at] == "+" else 1, "")


async def probe(script: str, **probes: Any) -> tuple[list[tuple[float, str, float]], list[Any]]:
    """Probe a container for 60 seconds; return the checks and the times of results."""
    pod = read_node_pod(msgspec.json.encode(a_pod("true", **probes)))
    clock = virtual_clock()
    began = clock.monotonic()
    runtime = AnsweringRuntime(clock, script)
    results: list[Any] = []

    def probed(uid: str, result: Probed) -> None:
        found = (result.ready, result.started, result.unhealthy)
        results.append((clock.monotonic() - began, found))

    prober = Prober(runtime, clock, lambda ref: True, probed, lambda pod, reason, message: None)
    prober.begin(pod, pod.spec.containers[0], 0)
    await asyncio.sleep(60)
    prober.stop()
    return [(at - began, *rest) for at, *rest in runtime.asked], results  # type: ignore[misc]


@pytest.mark.virtual_time
async def test_probe_is_repeated_and_counted_as_its_fields_say() -> None:
    asked, results = await probe(
        "--++",
        readinessProbe={
            "exec": {"command": ["ask"]},
            "initialDelaySeconds": 7,
            "periodSeconds": 5,
            "timeoutSeconds": 4,
            "failureThreshold": 2,
            "successThreshold": 2,
        },
    )
    assert asked[:3] == [(7, "ask", 4), (12, "ask", 4), (17, "ask", 4)]
    assert results[:2] == [(12, (False, None, None)), (22, (True, None, None))]


@pytest.mark.virtual_time
async def test_liveness_probe_begins_after_the_startup_probe_has_succeeded() -> None:
    action = {"periodSeconds": 10, "failureThreshold": 9}
    asked, results = await probe(
        "-+",
        startupProbe={"exec": {"command": ["startup"]}, **action},
        livenessProbe={"exec": {"command": ["liveness"]}, **action},
    )
    assert [command for _, command, _ in asked[:3]] == ["startup", "startup", "liveness"]
    assert results == [(10, (True, True, None))]


async def received(action: dict[str, Any], port: int, *, host: str = "127.0.0.1") -> bytes:
    """Return the first bytes that a check sends to a server on this address; b"" if none."""
    arrived: asyncio.Queue[bytes] = asyncio.Queue()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        arrived.put_nowait(await reader.read(4096))
        writer.close()

    pod = read_node_pod(
        msgspec.json.encode(
            a_pod(
                "true",
                ports=[{"name": "web", "containerPort": port}],
                readinessProbe={**action, "timeoutSeconds": 30},
            )
        )
    )
    (container,) = pod.spec.containers
    assert container.readiness_probe is not None
    async with await asyncio.start_server(serve, host, port):
        runtime = SimulatedRuntime(virtual_clock())
        await check(runtime, pod, container, REF, container.readiness_probe)
        async with asyncio.timeout(30):
            return await arrived.get()


async def test_http_action_sends_path_and_headers_to_its_host() -> None:
    port = a_free_port()
    action = {
        "path": "/ready",
        "port": "web",
        "host": "127.0.0.2",
        "httpHeaders": [{"name": "X-Probe", "value": "yes"}],
    }
    request = await received({"httpGet": action}, port, host="127.0.0.2")
    assert request.startswith(b"GET /ready HTTP/1.1\r\n")
    assert b"\r\nX-Probe: yes\r\n" in request
    assert f"\r\nHost: 127.0.0.2:{port}\r\n".encode() in request


async def test_http_action_with_scheme_https_begins_a_tls_handshake() -> None:
    port = a_free_port()
    request = await received({"httpGet": {"port": port, "scheme": "HTTPS"}}, port)
    assert request[:1] == b"\x16"


async def test_tcp_action_connects_to_its_host_and_named_port() -> None:
    action = {"tcpSocket": {"host": "127.0.0.2", "port": "web"}}
    assert await received(action, a_free_port(), host="127.0.0.2") == b""


async def test_grpc_action_names_its_service() -> None:
    port = a_free_port()
    request = await received({"grpc": {"port": port, "service": "payments"}}, port)
    assert b"payments" in request


@pytest.mark.virtual_time
async def test_sleep_action_takes_its_seconds() -> None:
    lifecycle = {"postStart": {"sleep": {"seconds": 5}}}
    pod = read_node_pod(msgspec.json.encode(a_pod("true", lifecycle=lifecycle)))
    clock = virtual_clock()
    began = clock.monotonic()
    done: list[tuple[float, bool]] = []
    hooks = Hooks(SimulatedRuntime(clock), clock, lambda pod, reason, message: None)
    hooks.run_post_start(
        pod, pod.spec.containers[0], REF, lambda ok: done.append((clock.monotonic() - began, ok))
    )
    await asyncio.sleep(60)
    assert done == [(5, True)]
