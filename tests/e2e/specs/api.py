"""API client that behaves as upstream's Go clients: typed JSON over HTTPS, polls, informers.

It is strict: a response at which a Go client would stop raises here too.
"""

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TypeAlias, TypeVar

import aiohttp
import msgspec

from onejob.client.kubeconfig import load_kubeconfig
from onejob.clock import SystemClock
from onejob.wire.errors import Conflict, NotFound, from_status

Document: TypeAlias = dict[str, Any]
T = TypeVar("T")

#: Interval and duration of the polls of upstream's helpers.
POLL_SECONDS: Final = 2.0
POD_SECONDS: Final = 300.0


@dataclass(frozen=True, slots=True)
class Resource:
    group_version: str
    plural: str

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        root = "/api" if "/" not in self.group_version else "/apis"
        parts = [root, self.group_version]
        if namespace:
            parts += ["namespaces", namespace]
        return "/".join([*parts, *filter(None, (self.plural, name, subresource))])


JOBS: Final = Resource("batch/v1", "jobs")
CRONJOBS: Final = Resource("batch/v1", "cronjobs")
PODS: Final = Resource("v1", "pods")
NODES: Final = Resource("v1", "nodes")
EVENTS: Final = Resource("v1", "events")
SERVICES: Final = Resource("v1", "services")
NAMESPACES: Final = Resource("v1", "namespaces")
CONFIG_MAPS: Final = Resource("v1", "configmaps")
SERVICE_ACCOUNTS: Final = Resource("v1", "serviceaccounts")

_PATCHES: Final = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
}


class Api:
    """Client of one server: `async with Api(kubeconfig) as api`."""

    def __init__(self, kubeconfig: Path) -> None:
        self._connection = load_kubeconfig(kubeconfig, SystemClock())
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> "Api":
        credential = await self._connection.credentials.current()
        trust = ssl.create_default_context(cadata=self._connection.authority.decode())
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=trust),
            headers={
                "Authorization": credential.authorization,
                "Accept": "application/json, */*",
                "User-Agent": "e2e.test/v0.0.0 (linux/amd64) kubernetes/$Format",
            },
            timeout=aiohttp.ClientTimeout(total=None),
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._session is not None
        await self._session.close()

    async def get(
        self, resource: Resource, namespace: str, name: str, subresource: str = ""
    ) -> Document:
        return await self.call("GET", resource.path(namespace, name, subresource))

    async def listing(self, resource: Resource, namespace: str = "", **query: str) -> Document:
        found = await self.call("GET", resource.path(namespace), query)
        assert found["metadata"]["resourceVersion"].isdigit()
        assert isinstance(found["items"], list)
        return found

    async def items(self, resource: Resource, namespace: str, **query: str) -> list[Document]:
        found: list[Document] = (await self.listing(resource, namespace, **query))["items"]
        return found

    async def create(self, resource: Resource, namespace: str, document: Document) -> Document:
        return await self.call("POST", resource.path(namespace), body=document, expect=201)

    async def replace(
        self, resource: Resource, document: Document, subresource: str = ""
    ) -> Document:
        metadata = document["metadata"]
        path = resource.path(metadata["namespace"], metadata["name"], subresource)
        return await self.call("PUT", path, body=document)

    async def change(
        self, resource: Resource, namespace: str, name: str, change: Callable[[Document], None]
    ) -> Document:
        """Read, change and replace an object, repeated on conflicts."""
        while True:
            document = await self.get(resource, namespace, name)
            change(document)
            try:
                return await self.replace(resource, document)
            except Conflict:
                continue

    async def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        body: Document,
        *,
        type: str,
        subresource: str = "",
    ) -> Document:
        path = resource.path(namespace, name, subresource)
        return await self.call("PATCH", path, body=body, content_type=_PATCHES[type])

    async def delete(
        self, resource: Resource, namespace: str, name: str, **options: Any
    ) -> Document:
        path = resource.path(namespace, name)
        return await self.call("DELETE", path, body=_delete_options(resource, options))

    async def delete_collection(
        self, resource: Resource, namespace: str, selector: str, **options: Any
    ) -> Document:
        return await self.call(
            *("DELETE", resource.path(namespace), {"labelSelector": selector}),
            body=_delete_options(resource, options),
        )

    async def evict(self, namespace: str, name: str) -> None:
        eviction = {
            "kind": "Eviction",
            "apiVersion": "policy/v1",
            "metadata": {"name": name, "namespace": namespace, "creationTimestamp": None},
        }
        path = PODS.path(namespace, name, "eviction")
        await self.call("POST", path, body=eviction, expect=201)

    async def log(self, namespace: str, pod: str, **query: str) -> str:
        async with self._request("GET", PODS.path(namespace, pod, "log"), query) as response:
            assert response.status == 200, await response.text()
            return await response.text()

    async def exists(self, resource: Resource, namespace: str, name: str) -> bool:
        try:
            await self.get(resource, namespace, name)
        except NotFound:
            return False
        return True

    async def call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        body: Document | None = None,
        content_type: str = "application/json",
        expect: int = 200,
    ) -> Document:
        """Return the response, which must have the expected code; any other raises its error."""
        async with self._request(method, path, query, body, content_type) as response:
            answer: Document = msgspec.json.decode(await response.read())
            if response.status >= 400:
                raise from_status(answer)
            assert response.status == expect, (method, path, response.status)
            return answer

    async def watch(
        self, resource: Resource, namespace: str = "", **query: str
    ) -> AsyncGenerator[tuple[str, Document], None]:
        """Yield events, for as long as the server sends them."""
        path = resource.path(namespace)
        async with self._request("GET", path, {**query, "watch": "true"}) as response:
            assert response.status == 200, await response.text()
            async for line in response.content:
                event = msgspec.json.decode(line)
                yield event["type"], event["object"]

    def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Document | None = None,
        content_type: str = "application/json",
    ) -> "aiohttp.client._RequestContextManager":
        assert self._session is not None
        return self._session.request(
            *(method, self._connection.server + path),
            params=query,
            data=None if body is None else msgspec.json.encode(body),
            headers={} if body is None else {"Content-Type": content_type},
        )


def _delete_options(resource: Resource, options: Document) -> Document:
    return {"kind": "DeleteOptions", "apiVersion": resource.group_version, **options}


class Informer:
    """Current state of a selection, and everything that was ever added to it.

    Requests the initial events as a stream, as every informer of upstream's tests does: a server
    that ignores the parameter would leave it waiting for the bookmark that ends them.
    """

    def __init__(self) -> None:
        self.current: dict[str, Document] = {}
        self.added: list[Document] = []
        self.changed: list[tuple[Document, Document]] = []
        self.synced = asyncio.Event()

    async def run(self, api: Api, resource: Resource, namespace: str, selection: Document) -> None:
        stream = api.watch(
            *(resource, namespace),
            **selection,
            allowWatchBookmarks="true",
            resourceVersionMatch="NotOlderThan",
            sendInitialEvents="true",
            timeoutSeconds="560",
            timeout="9m20s",
        )
        async for event, document in stream:
            metadata = document["metadata"]
            assert document["kind"], document
            assert int(metadata["resourceVersion"]) > 0
            if event == "BOOKMARK":
                if "k8s.io/initial-events-end" in metadata.get("annotations", {}):
                    self.synced.set()
            elif event == "ADDED":
                self.added.append(document)
                self.current[metadata["name"]] = document
            elif event == "MODIFIED":
                self.changed.append((self.current[metadata["name"]], document))
                self.current[metadata["name"]] = document
            else:
                assert event == "DELETED", document
                del self.current[metadata["name"]]


@asynccontextmanager
async def an_informer(
    api: Api, resource: Resource, namespace: str, **selection: str
) -> AsyncIterator[Informer]:
    informer = Informer()
    task = asyncio.create_task(informer.run(api, resource, namespace, selection))
    synced = asyncio.create_task(informer.synced.wait())
    try:
        await asyncio.wait((task, synced), timeout=120, return_when=asyncio.FIRST_COMPLETED)
        assert synced.done(), f"the informer of {resource.plural} never synced: {task}"
        yield informer
        assert not task.done(), task
    finally:
        for each in (task, synced):
            each.cancel()
        await asyncio.gather(task, synced, return_exceptions=True)


async def until(
    what: str,
    look: Callable[[], Awaitable[T]],
    holds: Callable[[T], object],
    *,
    seconds: float,
    every: float = POLL_SECONDS,
) -> T:
    """Return the result of `look` once `holds` accepts it. Errors of `look` end the wait."""
    clock = asyncio.get_running_loop()
    give_up = clock.time() + seconds
    while True:
        seen = await look()
        if holds(seen):
            return seen
        assert clock.time() < give_up, f"waited in vain for {what}; last seen: {seen}"
        await asyncio.sleep(every)


async def throughout(
    what: str, look: Callable[[], Awaitable[T]], holds: Callable[[T], object], *, seconds: float,
    every: float = POLL_SECONDS,
) -> None:  # fmt: skip
    """Check that `holds` accepts every result of `look` in this time."""
    clock = asyncio.get_running_loop()
    end = clock.time() + seconds
    while clock.time() < end:
        seen = await look()
        assert holds(seen), f"not {what}: {seen}"
        await asyncio.sleep(every)
