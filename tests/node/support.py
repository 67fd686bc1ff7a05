"""Node on the real API in this process, and manifests for it."""

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from onejob.api.service import Service
from onejob.client.base import Create, Selection
from onejob.client.local import LocalClient
from onejob.clock import Clock, SystemClock
from onejob.controllers.bootstrap import bootstrap
from onejob.gates import FeatureGates
from onejob.informers.shared import SharedInformers
from onejob.node.agent.agent import NodeAgent
from onejob.node.images import Images
from onejob.node.options import NodeOptions
from onejob.node.process.runtime import ProcessRuntime
from onejob.node.process.runtime_settings import ProcessSettings
from onejob.node.runtime import NodeContext, Runtime
from onejob.node.supervisor import pid_namespaces
from onejob.node.supervisor.spawn import can_isolate
from onejob.objects.meta import PODS, Key
from onejob.planning.pod.placement import Amounts
from onejob.store.log import LogStore
from onejob.store.writer import LoopCommitter
from onejob.wire.errors import NotFound
from onejob.wire.requests import LogOptions
from tests import build

NODE = "here"
ROOM: Amounts = {"cpu": 4000, "memory": 2**33, "pods": 110}
Document = dict[str, Any]

_NAMESPACES = can_isolate()
#: For features that need a mount namespace; the behaviour without one has tests of its own.
needs_namespaces = pytest.mark.skipif(
    not _NAMESPACES, reason="this machine has no mount namespaces"
)


def _pid_namespace_problem() -> str:
    """Try a PID namespace in a child process.

    Without root, trying changes a process's privileges.
    """
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(write, pid_namespaces.problem().encode())
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(pid, 0)
    with open(read) as file:
        return file.read()


_PID_NAMESPACE_PROBLEM = _pid_namespace_problem()
needs_pid_namespaces = pytest.mark.skipif(
    bool(_PID_NAMESPACE_PROBLEM),
    reason=f"this machine has no PID namespaces: {_PID_NAMESPACE_PROBLEM}",
)
#: Without namespaces a volume is a symbolic link, which only root may create anywhere.
needs_any_path = pytest.mark.skipif(
    not _NAMESPACES and os.geteuid() != 0,
    reason="this machine has no mount namespaces, and only root may put links there",
)
#: Mount path of volumes in tests: one that is writable even then.
DATA = "/data" if _NAMESPACES or os.geteuid() == 0 else f"{tempfile.gettempdir()}/data"


@asynccontextmanager
async def an_api(
    path: Path, clock: Clock | None = None, *, in_this_thread: bool = False
) -> AsyncIterator[LocalClient]:
    """Run an API in this process and yield a client.

    `in_this_thread` commits on the event loop, as virtual time requires.
    """
    clock = clock or SystemClock()
    committer = LoopCommitter(0.001) if in_this_thread else None
    store = await LogStore.open(path / "db", clock=clock, committer=committer)
    try:
        client = LocalClient(Service(store, clock=clock, rng=Random(1), gates=FeatureGates()))
        await bootstrap(client)
        yield client
    finally:
        await store.close()


def process_runtime(
    path: Path,
    *,
    images: Images | None = None,
    isolation: bool | None = None,
    host_paths: tuple[str, ...] | None = None,
    **settings: Any,
) -> ProcessRuntime:
    """Return a runtime; `settings` are fields of NodeOptions."""
    base_env = {"PATH": os.environ["PATH"], "HOME": "/nowhere"}
    chosen = ProcessSettings(
        NodeContext(NODE, "127.0.0.1", ROOM, host_paths=lambda namespace: host_paths),
        base_env,
        NodeOptions(**{"pid_namespace": "off", **settings}),
        images or Images(),
        isolation=isolation,
    )
    return ProcessRuntime(path, SystemClock(), chosen)


@asynccontextmanager
async def a_node(
    client: LocalClient,
    runtime: Runtime,
    *,
    clock: Clock | None = None,
    capacity: Amounts = ROOM,
    end_pods: bool = True,
) -> AsyncIterator["Node"]:
    """Run a node agent with its informers; `end_pods` ends its Pods at the end."""
    informers = SharedInformers(client)
    agent = NodeAgent(
        client,
        informers.pods,
        runtime,
        node_name=NODE,
        clock=clock or SystemClock(),
        rng=Random(2),
        capacity=capacity,
        sources=[informers.metadata(resource) for resource in ("configmaps", "secrets")],
    )
    await informers.start()
    await agent.start()
    try:
        yield Node(client, agent)
    finally:
        await agent.stop(end_pods=end_pods)
        await informers.stop()


@asynccontextmanager
async def a_process_node(path: Path, **settings: Any) -> AsyncIterator["Node"]:
    """Run an API and a node whose containers are processes."""
    async with an_api(path) as client, a_node(client, process_runtime(path, **settings)) as node:
        yield node


class Node:
    """A node, with helpers to create Pods and to wait for their states."""

    def __init__(self, client: LocalClient, agent: NodeAgent) -> None:
        self.client = client
        self.agent = agent

    async def create(self, document: Document) -> Document:
        resource = {"Pod": PODS, "ConfigMap": "configmaps", "Secret": "secrets"}[document["kind"]]
        body = msgspec.json.encode(document).replace(b"/data", DATA.encode())
        written = await self.client.write(Create(resource, "default", body))
        created: Document = msgspec.json.decode(written.document)
        return created

    async def pod(self, name: str) -> Document:
        document: Document = msgspec.json.decode(await self.client.get(Key(PODS, "default", name)))
        return document

    async def until(self, name: str, holds: Callable[[Document], object]) -> Document:
        """Return the Pod once `holds` is true for it. A timeout shows the last state of the Pod."""
        last: Document = {}
        try:
            async with asyncio.timeout(60):
                while True:
                    last = await self.pod(name)
                    if holds(last):
                        return last
                    await asyncio.sleep(0.01)
        except TimeoutError:
            raise AssertionError(f"never came to be: {msgspec.json.encode(last)!r}") from None

    async def finished(self, name: str) -> Document:
        return await self.until(name, lambda p: p["status"].get("phase") in ("Succeeded", "Failed"))

    async def gone(self, name: str) -> None:
        async with asyncio.timeout(60):
            while True:
                try:
                    await self.pod(name)
                except NotFound:
                    return
                await asyncio.sleep(0.01)

    async def run(self, document: Document) -> Document:
        """Create a Pod and wait for its end."""
        await self.create(document)
        return await self.finished(document["metadata"]["name"])

    async def output(self, name: str, container: str = "", **options: Any) -> str:
        chunks = self.agent.logs("default", name, container, LogOptions(**options))
        return b"".join([chunk async for chunk in chunks]).decode()

    async def until_output(self, name: str, text: str) -> None:
        """Wait until the output of a Pod contains the text."""
        async with asyncio.timeout(30):
            while text not in await self.output(name):  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def until_told(self, name: str, reason: str = "") -> list[tuple[str, str]]:
        """Return the events of a Pod, once one exists or, if given, one with this reason."""
        async with asyncio.timeout(30):
            while True:
                events = await self.events(name)
                if any(reason in (found, "") for found, _ in events):
                    return events
                await asyncio.sleep(0.01)

    async def events(self, name: str) -> list[tuple[str, str]]:
        """Return reason and message of each event of a Pod."""
        listing = await self.client.list(Selection("events", "default"))
        documents = [msgspec.json.decode(document) for document in listing.documents]
        return [
            (event["reason"], event["message"])
            for event in documents
            if event["involvedObject"]["name"] == name
        ]


def a_pod(*command: str, name: str = "p", policy: str = "Never", **container: Any) -> Document:
    """Return a Pod of one container; keywords are fields of the container."""
    only: Document = {"name": "c", "image": "example", **container}
    if command:
        only["command"] = list(command)
    return build.a_pod(name, only, metadata={"namespace": "default"}, restartPolicy=policy)


def shell(script: str, **rest: Any) -> Document:
    """Return a Pod that runs a shell script."""
    return a_pod("sh", "-c", script, **rest)


def with_spec(document: Document, **fields: Any) -> Document:
    """Return the Pod with more fields in its spec."""
    return {**document, "spec": {**document["spec"], **fields}}


def the_container(pod: Document) -> Document:
    """Return the status of the Pod's first container."""
    status: Document = pod["status"]["containerStatuses"][0]
    return status


def condition(pod: Document, kind: str) -> Document | None:
    """Return the condition of this type, or None."""
    for found in pod["status"].get("conditions", ()):
        if found["type"] == kind:
            return dict(found)
    return None


def alive(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return not stat.rpartition(")")[2].startswith(" Z")


async def until_dead(pid: int) -> None:
    """Wait until a process has ended."""
    await until_true(lambda: not alive(pid))


async def until_true(holds: Callable[[], object]) -> None:
    """Poll until `holds` is true, for conditions without a notification."""
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def supervisors(data_dir: Path) -> list[int]:
    """Return the process IDs of the supervisors of a data dir."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if b"supervisor" in command and bytes(data_dir) in command:
                found.append(int(entry.name))
    return found
