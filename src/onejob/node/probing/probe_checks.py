"""A single check of a container: by a command, an HTTP or gRPC request, or a TCP connection."""

import asyncio
import ssl
from typing import Protocol

from msgspec import Struct

from onejob.node.probing.grpc_health import health
from onejob.node.runtime import AttemptRef, Runtime
from onejob.node.supervisor.pressure import DESCRIPTORS, MEMORY, pressure_of
from onejob.objects.pod_spec import (
    Container,
    ExecAction,
    GrpcAction,
    HttpGetAction,
    NodePod,
    PortName,
    Probe,
    TcpSocketAction,
)


class ProbeAction(Protocol):
    """Action of a probe or a lifecycle hook: one of these is set."""

    @property
    def exec(self) -> ExecAction | None: ...
    @property
    def http_get(self) -> HttpGetAction | None: ...
    @property
    def tcp_socket(self) -> TcpSocketAction | None: ...


class ProbeResult(Struct, frozen=True):
    ok: bool
    why: str = ""
    #: Status code of an HTTP response; 0 for other checks.
    status: int = 0
    #: The check was not made for lack of resources on the node, and implies nothing about the
    #: container.
    unasked: bool = False


async def check(
    runtime: Runtime, pod: NodePod, container: Container, ref: AttemptRef, probe: Probe
) -> ProbeResult:
    """Make one check of a probe. Failures of the container are returned, never raised."""
    seconds = max(probe.timeout_seconds, 1)
    if probe.grpc is not None:
        return await _ask_for_health(probe.grpc, seconds)
    return await ask(runtime, pod, container, ref, probe, seconds)


async def ask(
    runtime: Runtime,
    pod: NodePod,
    container: Container,
    ref: AttemptRef,
    question: ProbeAction,
    seconds: float,
) -> ProbeResult:
    """Execute one probe and return its result."""
    if question.exec is not None:
        result = await runtime.run_command(pod, ref, question.exec.command, seconds)
        why = result.output.strip() or f"exit code {result.code}"
        return ProbeResult(result.code == 0, why, unasked=bool(result.pressure))
    try:
        async with asyncio.timeout(seconds):
            if question.http_get is not None:
                return await _get(container, question.http_get)
            if question.tcp_socket is not None:
                action = question.tcp_socket
                _, writer = await asyncio.open_connection(
                    action.host or "127.0.0.1", _port(container, action.port)
                )
                writer.close()
                return ProbeResult(True)
    except TimeoutError:
        return ProbeResult(False, f"no response within {seconds:g} s")
    except (OSError, ValueError) as error:
        return _not_answered(error)
    return ProbeResult(False, "no probe action")


def _not_answered(error: Exception) -> ProbeResult:
    return ProbeResult(False, str(error), unasked=pressure_of(error) in (DESCRIPTORS, MEMORY))


async def _ask_for_health(action: GrpcAction, seconds: float) -> ProbeResult:
    """Return the result of a gRPC probe."""
    try:
        async with asyncio.timeout(seconds):
            status = await health("127.0.0.1", action.port, action.service)
    except TimeoutError:
        return ProbeResult(False, f"no response within {seconds:g} s")
    except (OSError, ValueError) as error:
        return _not_answered(error)
    return ProbeResult(status == "SERVING", f'service unhealthy (responded with "{status}")')


async def _get(container: Container, action: HttpGetAction) -> ProbeResult:
    """Return the result of an HTTP GET probe."""
    host, port = action.host or "127.0.0.1", _port(container, action.port)
    # As in the kubelet, certificates are not verified: only the response matters.
    tls = _unchecked_tls() if action.scheme == "HTTPS" else None
    reader, writer = await asyncio.open_connection(host, port, ssl=tls)
    headers = {"Host": f"{host}:{port}", "User-Agent": "kube-probe/onejob", "Connection": "close"}
    headers |= {header.name: header.value for header in action.http_headers}
    lines = [f"GET {action.path or '/'} HTTP/1.1", *(f"{k}: {v}" for k, v in headers.items())]
    writer.write("\r\n".join([*lines, "", ""]).encode())
    status = (await reader.readline()).split()
    writer.close()
    if len(status) < 2 or not status[1].isdigit():
        return ProbeResult(False, "not an HTTP response")
    code = int(status[1])
    return ProbeResult(200 <= code < 400, f"HTTP probe failed with statuscode: {code}", code)


def _unchecked_tls() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _port(container: Container, port: PortName) -> int:
    """Return a port by its name or number. Raises ValueError."""
    if isinstance(port, int):
        return port
    for declared in container.ports:
        if declared.name == port:
            return declared.container_port
    return int(port)
