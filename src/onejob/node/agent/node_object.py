"""Node object of the agent: registration, lease and status heartbeats, cordon and taints."""

import asyncio
import logging
import os
import platform
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from typing import Any

import msgspec

from onejob import __version__
from onejob.api.schema.schema import load_schema
from onejob.api.unreadable import StorageReadError
from onejob.client.base import Client, Create, Patch, Selection
from onejob.client.events import About, EventRecorder
from onejob.clock import Clock
from onejob.informers.cache import Delta
from onejob.informers.informer import Informer
from onejob.node.conditions import ConditionEvent, NodeConditions
from onejob.objects.meta import NODES, Key, Meta, View
from onejob.planning.pod.demand import write_amounts
from onejob.planning.pod.placement import Amounts, NodeView, Taint
from onejob.wire.errors import CALL_FAILURES, AlreadyExists, InsufficientStorage, NotFound

log = logging.getLogger(__name__)

_LEASE_NAMESPACE = "kube-node-lease"
LEASES = "leases.coordination.k8s.io"
#: The kubelet's intervals: a lease of 40 s renewed every 10 s; the status only every 5 minutes.
_LEASE_SECONDS = 40
_RENEW_SECONDS = 10.0
_STATUS_EVERY_SECONDS = 300.0
#: Seconds before a failed status write is retried.
_RETRY_SECONDS = 1.0


class _TaintView(View, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""


class _NodeSpec(View, frozen=True):
    unschedulable: bool = False
    taints: tuple[_TaintView, ...] = ()


class _Node(View, frozen=True):
    metadata: Meta = Meta()
    spec: _NodeSpec = _NodeSpec()


_read_node = msgspec.json.Decoder(_Node).decode


class NodeObject:
    """Node and Lease of this agent in the API, kept up to date while `run` is running.

    Guarantees: `view` has the labels, taints and schedulability of the Node as last seen by the
    watch. A deleted Node is registered again with the next heartbeat or status write. Failed
    heartbeats and status writes are logged and retried by `run`.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        rng: Random,
        name: str,
        ip: str,
        capacity: Amounts,
        runtime: str,
        recorder: EventRecorder,
    ) -> None:
        self.name = name
        #: Setting a condition writes the Node's status and records an event.
        self.conditions = NodeConditions(clock.now, self._condition_changed)
        self._recorder = recorder
        self._status_due = asyncio.Event()
        #: False if the Node has to be registered: it was deleted, or could not be created.
        self._registered = True
        self._beat_due = asyncio.Event()
        self._client = client
        self._clock = clock
        self._rng = rng
        self._ip = ip
        self._capacity = capacity
        self._runtime = runtime
        self._key = Key(NODES, "", name)
        self._lease = Key(LEASES, _LEASE_NAMESPACE, name)
        self._view = NodeView(name, {"kubernetes.io/hostname": name}, allocatable=capacity)
        self._on_change: Callable[[NodeView], None] | None = None
        self._informer: Informer[_Node] = Informer(
            client,
            Selection(NODES, fields=f"metadata.name={name}"),
            _read_node,
            lambda node: Key(NODES, "", node.metadata.name),
        )
        self._informer.on_change(self._changed)

    def view(self) -> NodeView:
        """Return the newest state of the Node for placement."""
        return self._view

    def on_change(self, notify: Callable[[NodeView], None]) -> None:
        """Set the callback for changes of labels, taints or schedulability."""
        self._on_change = notify

    async def begin(self) -> None:
        """Register the Node; if the disk is full, keep trying in the background.

        Pods that already run on this node must be supervised even while it cannot be registered.
        """
        try:
            await self.register()
        except InsufficientStorage as error:
            log.warning("cannot register the node yet: %s", error)
            self._registered = False
            self._status_due.set()

    async def register(self) -> None:
        """Create the Node, or update an existing one. Labels added by users are kept."""
        document = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.name, "labels": self._labels()},
            "spec": {},
        }
        try:
            encoded = msgspec.json.encode(document)
            await self._client.write(Create(NODES, "", encoded, replaces_damaged=True))
        except AlreadyExists:
            body = msgspec.json.encode({"metadata": {"labels": self._labels()}})
            written = await self._client.write(Patch(self._key, body))
            self.conditions.inherit(written.document)
        await self._write_status()
        self._registered = True
        await self._renew_lease()

    async def run(self) -> None:
        """Watch the Node and send heartbeats, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._informer.run())
            group.create_task(self._send_heartbeats())
            group.create_task(self._report_changes())

    async def _send_heartbeats(self) -> None:
        """Renew the Lease, and update the Node's status periodically."""
        status_due = self._clock.monotonic() + _STATUS_EVERY_SECONDS
        while True:
            # Jitter, so that many nodes do not send their heartbeats at the same moment.
            with suppress(TimeoutError):
                async with asyncio.timeout(_RENEW_SECONDS * self._rng.uniform(1.0, 1.04)):
                    await self._beat_due.wait()
            self._beat_due.clear()
            try:
                await self._renew_lease()
                if not self._registered:
                    await self._register_again()
                elif self._clock.monotonic() >= status_due:
                    status_due = self._clock.monotonic() + _STATUS_EVERY_SECONDS
                    await self._write_status()
            except NotFound:
                await self._register_again()
            except CALL_FAILURES as error:
                log.warning("heartbeat: %s", error)

    def beat_soon(self) -> None:
        """Send a heartbeat now. Called after the clock was set: controllers that evaluate the age
        of the last heartbeat must not be misled."""
        self._beat_due.set()
        self._status_due.set()

    def _condition_changed(self, event: ConditionEvent | None) -> None:
        """Write the status soon, and record the transition if it is one."""
        self._status_due.set()
        if event is not None:
            log.log(logging.WARNING if event.type == "Warning" else logging.INFO, event.message)
            # The kubelet, too, uses the Node's name as the event's involvedObject UID.
            node = About("v1", "Node", "", self.name, self.name)
            self._recorder.record(node, event.type, event.reason, event.message)

    async def _report_changes(self) -> None:
        """Write the status when a condition has changed: the next heartbeat may be minutes away."""
        while True:
            await self._status_due.wait()
            self._status_due.clear()
            try:
                if self._registered:
                    await self._write_status()
                else:
                    await self.register()
            except CALL_FAILURES as error:
                self._registered = self._registered and not isinstance(error, NotFound)
                log.warning("cannot write the node's conditions yet: %s", error)
                self._status_due.set()
                await asyncio.sleep(_RETRY_SECONDS)

    async def _register_again(self) -> None:
        try:
            await self.register()
        except CALL_FAILURES as error:
            log.warning("cannot register the node: %s", error)

    async def _renew_lease(self) -> None:
        """Renew the node's Lease, created again if it does not exist."""
        now = self._clock.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        body = msgspec.json.encode({"spec": {"renewTime": now}})
        try:
            await self._client.write(Patch(self._lease, body, "merge"))
        except (NotFound, StorageReadError):
            document = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": self.name, "namespace": _LEASE_NAMESPACE},
                "spec": {
                    "holderIdentity": self.name,
                    "leaseDurationSeconds": _LEASE_SECONDS,
                    "renewTime": now,
                },
            }
            encoded = msgspec.json.encode(document)
            await self._client.write(
                Create(LEASES, _LEASE_NAMESPACE, encoded, replaces_damaged=True)
            )

    async def _write_status(self) -> None:
        body = msgspec.json.encode({"status": self._status()})
        await self._client.write(Patch(self._key, body, subresource="status"))

    def _labels(self) -> dict[str, str]:
        """Return the labels of a new Node."""
        return {
            "kubernetes.io/hostname": self.name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": _architecture(),
        }

    def _status(self) -> dict[str, Any]:
        """Return the status of the Node."""
        amounts = write_amounts(self._capacity)
        return {
            "capacity": amounts,
            "allocatable": amounts,
            "addresses": [
                {"type": "InternalIP", "address": self._ip},
                {"type": "Hostname", "address": self.name},
            ],
            "conditions": self.conditions.documents(),
            "nodeInfo": {
                "machineID": "",
                "systemUUID": "",
                "bootID": "",
                "kernelVersion": platform.release(),
                "osImage": _os_image(),
                "containerRuntimeVersion": f"{self._runtime}://onejob",
                "kubeletVersion": _kubelet_version(),
                "kubeProxyVersion": "",
                "operatingSystem": "linux",
                "architecture": _architecture(),
            },
        }

    def _changed(self, deltas: Sequence[Delta[_Node]]) -> None:
        """Take over labels and taints of the Node; note if it was deleted."""
        node = deltas[-1].new
        if node is None:
            self._registered = False
            return
        self._view = NodeView(
            self.name,
            node.metadata.labels,
            tuple(Taint(t.key, t.value, t.effect) for t in node.spec.taints),
            node.spec.unschedulable,
            self._capacity,
        )
        if self._on_change is not None:
            self._on_change(self._view)


def _kubelet_version() -> str:
    """Return the emulated Kubernetes release; clients parse it as a semantic version."""
    return f"{load_schema().release}+onejob.{__version__}"


def _architecture() -> str:
    """Return the machine's architecture by its name in Kubernetes."""
    machine = platform.machine()
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)


def _os_image() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")
    except OSError:
        return f"Linux {os.uname().release}"
