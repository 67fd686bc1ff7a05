"""Webhooks behind TLS, and a service that calls them."""

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from onejob.admission_policies.authorizing import allow_all
from onejob.api.access.certificates import ensure_certificates
from onejob.api.service import Service
from onejob.clock import SystemClock
from onejob.gates import FeatureGates
from onejob.metrics import Metrics
from onejob.store.log import LogStore
from onejob.store.writer import LoopCommitter
from onejob.webhooks.calling import WebhookCaller
from onejob.webhooks.conversion import WebhookConverter
from onejob.webhooks.plugins import MutatingWebhooks, ValidatingWebhooks
from tests.api.service_support import NAMESPACE, PERSON

Doc = dict[str, Any]
#: Gets the decoded review; returns the `response` without its uid.
Respond = Callable[[Doc], Doc]
#: Gets path and body; returns the whole HTTP response.
RespondRaw = Callable[[str, bytes], Awaitable[bytes]]

#: Gets path and body; writes the response, as it likes.
WriteRaw = Callable[[str, bytes, asyncio.StreamWriter], Awaitable[None]]

SERVICE_NAME = "hook.default.svc"


class Hook:
    """A running webhook."""

    def __init__(self, port: int, ca_bundle: str, certificate: str = "") -> None:
        self.port = port
        self.ca_bundle = ca_bundle
        #: Base64 of its own certificate.
        self.certificate = certificate
        self.paths: list[str] = []
        self.connections = 0
        self.reviews: list[Doc] = []

    def client(self, path: str = "/") -> Doc:
        url = f"https://127.0.0.1:{self.port}{path}"
        return {"url": url, "caBundle": self.ca_bundle}

    def service_client(self, path: str = "/") -> Doc:
        service = {"namespace": "default", "name": "hook", "path": path}
        return {"service": service, "caBundle": self.ca_bundle}


@asynccontextmanager
async def a_raw_hook(folder: Path, respond: RespondRaw) -> AsyncIterator[Hook]:
    async def write(path: str, body: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(await respond(path, body))
        await writer.drain()

    async with a_writing_hook(folder, write) as hook:
        yield hook


@asynccontextmanager
async def a_writing_hook(folder: Path, write: WriteRaw) -> AsyncIterator[Hook]:
    made = ensure_certificates(folder / "pki", ("127.0.0.1", SERVICE_NAME), SystemClock().now())
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(made.certificate, made.key)
    bundles = (made.authority, made.certificate)
    hook = Hook(0, *(base64.b64encode(path.read_bytes()).decode() for path in bundles))

    open_connections: dict[asyncio.Task[None] | None, asyncio.StreamWriter] = {}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hook.connections += 1
        task = asyncio.current_task()
        open_connections[task] = writer
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
                body = await reader.readexactly(length)
                hook.paths.append(head.split(b" ")[1].decode())
                await write(hook.paths[-1], body, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            del open_connections[task]
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    hook.port = server.sockets[0].getsockname()[1]
    try:
        yield hook
    finally:
        server.close()
        for writer in open_connections.values():
            writer.transport.abort()
        # Their tasks end before the loop is closed.
        if tasks := [task for task in open_connections if task is not None]:
            await asyncio.wait(tasks)


@asynccontextmanager
async def a_hook(folder: Path, respond: Respond) -> AsyncIterator[Hook]:
    """Run an admission webhook that allows everything, with the fields that `respond` returns."""

    async def raw(path: str, body: bytes) -> bytes:
        review = msgspec.json.decode(body)
        hook.reviews.append(review)
        return http_response(review_response(review, respond(review["request"])))

    async with a_raw_hook(folder, raw) as hook:
        yield hook


def review_response(review: Doc, response: Doc) -> bytes:
    response = {"uid": review["request"]["uid"], "allowed": True, **response}
    return msgspec.json.encode(
        {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
    )


def http_response(body: bytes, status: str = "200 OK", headers: str = "") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
    return head.encode() + body


def patch(*operations: Doc) -> Doc:
    encoded = base64.b64encode(msgspec.json.encode(list(operations))).decode()
    return {"patchType": "JSONPatch", "patch": encoded}


@asynccontextmanager
async def a_calling_service(folder: Path, host: str = "") -> AsyncIterator[Service]:
    """Run a service with the namespace `default` that calls webhooks."""
    store = await LogStore.open(folder / "db", clock=SystemClock(), committer=LoopCommitter())
    service = Service(store, clock=SystemClock(), rng=Random(7), gates=FeatureGates())
    await service.create(NAMESPACE, "", {"metadata": {"name": "default"}}, PERSON)
    caller = WebhookCaller(store, host)
    service.converter = WebhookConverter(caller, service.definitions.conversion, Random(2)).convert
    shared = (store, service.kinds, caller, Random(1), Metrics(), service.converted, allow_all)
    service.admission.dynamic.install((MutatingWebhooks(*shared),), (ValidatingWebhooks(*shared),))
    try:
        yield service
    finally:
        await caller.close()
        await store.close()


def a_webhook(hook: Hook, name: str = "w.test.dev", **fields: Any) -> Doc:
    """Return one webhook for ConfigMaps; `fields` replace its own."""
    rule = {
        "operations": ["*"],
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "resources": ["configmaps"],
    }
    return {
        "name": name,
        "clientConfig": hook.client(),
        "rules": [rule],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        **fields,
    }


async def configure(
    service: Service, *webhooks: Doc, name: str = "c", mutating: bool = False
) -> None:
    plural = "mutatingwebhookconfigurations" if mutating else "validatingwebhookconfigurations"
    kind = service.kinds.by_resource[f"{plural}.admissionregistration.k8s.io"]
    body = {"metadata": {"name": name}, "webhooks": list(webhooks)}
    await service.create(kind, "", body, PERSON)
