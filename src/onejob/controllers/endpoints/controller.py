"""Endpoints controller: writes the addresses of Services with selectors.

Both Endpoints, which older clients read, and EndpointSlices are written by one controller; upstream
has one for each.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct, field

from onejob.client.base import Create, Delete, Op, Replace, Selection
from onejob.controllers.context import ControllerContext
from onejob.controllers.on_demand import OneQueue
from onejob.informers.cache import Delta
from onejob.informers.workqueue import WorkQueue, work
from onejob.objects.meta import Key
from onejob.objects.pod import Pod
from onejob.objects.service import AddressedPod, Service, read_addressed_pod
from onejob.planning.endpoints.addresses import (
    MANAGED_BY,
    SERVICE_LABEL,
    SLICE_MANAGER,
    Address,
    address_of,
    differs,
    endpoints_document,
    slice_documents,
)
from onejob.wire.errors import ApiError, NotFound

_ENDPOINTS: Final = "endpoints"
_SLICES: Final = "endpointslices.discovery.k8s.io"
#: Seconds that changes of a Service's Pods are collected.
_BATCH_SECONDS: Final = 0.05


class _Followed(Struct):
    """Service with the Pods that it selects."""

    selector: Mapping[str, str]
    pods: dict[Key, Pod] = field(default_factory=dict)
    #: Addresses and ports by UID of a Pod; these never change.
    known: dict[str, AddressedPod] = field(default_factory=dict)

    def selects(self, pod: Pod) -> bool:
        labels = pod.metadata.labels
        return all(labels.get(name) == value for name, value in self.selector.items())

    def update(self, key: Key, pod: Pod | None) -> bool:
        """Add, update or remove a Pod. Return whether addresses may change."""
        before = self.pods.pop(key, None)
        if pod is not None and not pod.terminal and self.selects(pod):
            self.pods[key] = pod
            return before is None or _relevant(before) != _relevant(pod)
        if before is not None:
            self.known.pop(before.metadata.uid, None)
        return before is not None


class EndpointsController(OneQueue):
    """Controller of the addresses of Services."""

    queue_name = "endpoint"

    def __init__(self, context: ControllerContext, *, workers: int = 2) -> None:
        self._client = context.client
        self._services = context.informers.services
        self._pods = context.informers.pods
        self._workers = workers
        self._queue: WorkQueue[Key] = WorkQueue()
        #: Services with selectors, by namespace.
        self._followed: dict[str, dict[Key, _Followed]] = {}
        self._services.on_change(self._services_changed)
        self._pods.on_change(self._pods_changed)

    async def run(self) -> None:
        for service in self._services.cache:
            if service.selects_pods:
                self._queue.add(service.key)
        await work(self._queue, self.sync, workers=self._workers, name="endpoint")

    def _services_changed(self, deltas: Sequence[Delta[Service]]) -> None:
        for delta in deltas:
            if any(view is not None and view.selects_pods for view in (delta.old, delta.new)):
                self._queue.add(delta.key)

    def _pods_changed(self, deltas: Sequence[Delta[Pod]]) -> None:
        for delta in deltas:
            for key, followed in self._followed.get(delta.key.namespace, {}).items():
                if followed.update(delta.key, delta.new):
                    self._queue.add_after(key, _BATCH_SECONDS)

    async def sync(self, key: Key) -> float | None:
        """Write the addresses of a Service."""
        service = self._services.cache.get(key)
        if service is None or not service.selects_pods:
            self._drop(key)
            if service is None:
                # EndpointSlices are deleted with their owner; Endpoints have none.
                await self._write_unless_gone(Delete(Key(_ENDPOINTS, key.namespace, key.name)))
            return None
        followed = self._follow(service)
        addresses = [
            address
            for pod in followed.pods.values()
            if (address := await self._address(service, followed, pod)) is not None
        ]
        await self._write_endpoints(service, addresses)
        await self._write_slices(service, addresses)
        return None

    def _follow(self, service: Service) -> _Followed:
        """Return the Pods that a Service selects, followed from now on."""
        services = self._followed.setdefault(service.metadata.namespace, {})
        followed = services.get(service.key)
        if followed is None or followed.selector != service.spec.selector:
            followed = services[service.key] = _Followed(service.spec.selector)
            for pod in self._pods.cache:
                if pod.metadata.namespace == service.metadata.namespace:
                    followed.update(pod.key, pod)
        return followed

    def _drop(self, key: Key) -> None:
        services = self._followed.get(key.namespace, {})
        services.pop(key, None)
        if not services:
            self._followed.pop(key.namespace, None)

    async def _address(self, service: Service, followed: _Followed, pod: Pod) -> Address | None:
        uid = pod.metadata.uid
        known = followed.known.get(uid)
        if known is None:
            try:
                known = read_addressed_pod(await self._client.get(pod.key))
            except NotFound:
                return None
            if known.metadata.uid != uid:
                return None
            if known.status.pod_ip:
                followed.known[uid] = known
        return address_of(service, known, ready=pod.ready, terminating=pod.metadata.deleting)

    async def _write_endpoints(self, service: Service, addresses: Sequence[Address]) -> None:
        key = Key(_ENDPOINTS, service.metadata.namespace, service.metadata.name)
        wanted = endpoints_document(service, addresses)
        try:
            present = msgspec.json.decode(await self._client.get(key))
        except NotFound:
            body = msgspec.json.encode(wanted)
            await self._client.write(Create(_ENDPOINTS, key.namespace, body))
            return
        if differs(present, wanted):
            await self._client.write(_replacement(key, present, wanted))

    async def _write_slices(self, service: Service, addresses: Sequence[Address]) -> None:
        namespace, name = service.metadata.namespace, service.metadata.name
        labels = f"{SERVICE_LABEL}={name},{MANAGED_BY}={SLICE_MANAGER}"
        listing = await self._client.list(Selection(_SLICES, namespace, labels=labels))
        documents = [msgspec.json.decode(document) for document in listing.documents]
        existing = {document["metadata"]["name"]: document for document in documents}
        wanted = slice_documents(service, addresses)
        ops: list[Op] = []
        for title, document in wanted.items():
            present = existing.pop(title, None)
            if present is None:
                ops.append(Create(_SLICES, namespace, msgspec.json.encode(document)))
            elif differs(present, document):
                ops.append(_replacement(Key(_SLICES, namespace, title), present, document))
        # Others of this Service have other ports, or are of an earlier one of its name.
        ops += [Delete(Key(_SLICES, namespace, title)) for title in existing]
        for result in await self._client.write_many(ops) if ops else ():
            if isinstance(result, ApiError) and not isinstance(result, NotFound):
                raise result

    async def _write_unless_gone(self, op: Op) -> None:
        try:
            await self._client.write(op)
        except NotFound:
            return


def _replacement(key: Key, present: Mapping[str, Any], wanted: Mapping[str, Any]) -> Replace:
    metadata = {**present["metadata"], "labels": wanted["metadata"]["labels"]}
    return Replace(key, msgspec.json.encode({**wanted, "metadata": metadata}))


def _relevant(pod: Pod) -> object:
    """Return the parts of a Pod that affect addresses."""
    metadata = pod.metadata
    return (metadata.uid, pod.phase, pod.ready, metadata.deleting, pod.spec.node_name)
