"""A real store and service in a temporary directory, and the HTTPS server in front of them.

async with running(tmp_path) as plane:            # in this process
    await plane.client.write(...)
async with running_http(tmp_path) as plane:       # over TLS, too
    plane.http, plane.kubeconfig, plane.server.url
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from onejob.api.access.admin_token import admin_token
from onejob.api.access.authentication import ADMIN, TokenAuthenticator
from onejob.api.access.authorization import AllowAuthenticated
from onejob.api.access.certificates import Certificates, ensure_certificates, server_names
from onejob.api.access.kubeconfig_writer import write_kubeconfig
from onejob.api.http.app import Access, ApiApp, PodSources
from onejob.api.http.server_pages import ServerPages
from onejob.api.http.serving import ApiServer
from onejob.api.schema.openapi import OpenApiDocuments
from onejob.api.schema.schema import load_schema
from onejob.api.service import Service
from onejob.api.unreadable import is_readable
from onejob.client.base import Client, Create
from onejob.client.http import HttpClient
from onejob.client.kubeconfig import load_kubeconfig
from onejob.client.local import LocalClient
from onejob.clock import Clock, SystemClock
from onejob.gates import FeatureGates
from onejob.metrics import Metrics
from onejob.store.limits import Limits
from onejob.store.log import LogStore
from onejob.wire.requests import WriteOptions

NAMESPACE = "default"


@dataclass(frozen=True)
class Plane:
    """Control plane in this process."""

    store: LogStore
    service: Service
    #: Trusted client, as controllers have it.
    client: LocalClient


@dataclass(frozen=True)
class HttpPlane(Plane):
    """Control plane in this process, with its HTTPS server and a client of it."""

    server: ApiServer[ApiApp]
    metrics: Metrics
    token: str
    certificates: Certificates
    #: For kubectl; `http` was made from it.
    kubeconfig: Path
    http: HttpClient


@asynccontextmanager
async def running(
    directory: Path,
    *,
    clock: Clock | None = None,
    seed: int = 1,
    gates: FeatureGates | None = None,
    limits: Limits | None = None,
) -> AsyncIterator[Plane]:
    """Run a store and a service in `directory`, with the namespace `default`."""
    clock = clock if clock is not None else SystemClock()
    store = await LogStore.open(
        directory / "onejob.db", clock=clock, limits=limits, is_readable=is_readable
    )
    try:
        service = Service(store, clock=clock, rng=Random(seed), gates=gates or FeatureGates())
        client = LocalClient(service)
        await ensure_namespace(client, NAMESPACE)
        yield Plane(store, service, client)
    finally:
        await store.close()


@asynccontextmanager
async def running_http(directory: Path, **options: Any) -> AsyncIterator[HttpPlane]:
    """Run a plane with its HTTPS server.

    `options` are those of `running`; `logs`, `ports`, `sessions` and `authorizer` go to the
    application.
    """
    sources = {name: options.pop(name) for name in ("logs", "ports", "sessions") if name in options}
    authorizer = options.pop("authorizer", None) or AllowAuthenticated()
    async with running(directory, **options) as plane:
        clock = SystemClock()
        certificates = ensure_certificates(
            directory / "pki", server_names("127.0.0.1"), clock.now()
        )
        token = admin_token(directory / "admin.token")
        metrics = Metrics()
        app = ApiApp(
            plane.service,
            access=Access(TokenAuthenticator({token: ADMIN}), authorizer),
            pages=ServerPages(
                load_schema().release,
                OpenApiDocuments(plane.service.schema, plane.service.kinds),
                metrics,
            ),
            pods=PodSources(**sources),
            rng=Random(2),
            metrics=metrics,
        )
        server = ApiServer(
            app, host="127.0.0.1", port=0, tls=certificates.server_context(), clock=clock
        )
        await server.start()
        kubeconfig = directory / "kubeconfig"
        write_kubeconfig(
            kubeconfig, server=server.url, authority=certificates.authority_data, token=token
        )
        http = HttpClient(load_kubeconfig(kubeconfig, clock), rng=Random(3))
        try:
            yield HttpPlane(
                plane.store,
                plane.service,
                plane.client,
                server,
                metrics,
                token,
                certificates,
                kubeconfig,
                http,
            )
        finally:
            await http.close()
            await server.stop()


async def ensure_namespace(client: Client, name: str) -> None:
    """Create a namespace."""
    document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    await client.write(Create("namespaces", "", msgspec.json.encode(document)))


def checked(service: Service) -> LocalClient:
    """Return a client whose documents are validated like a user's."""
    return LocalClient(service, WriteOptions(field_manager="test", field_validation="Strict"))
