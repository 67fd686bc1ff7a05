"""Production HTTP front of a control plane, on a simulated network."""

import asyncio
from collections.abc import Callable
from random import Random

from onejob.api.access.authentication import Credentials
from onejob.api.access.authorization import AllowAuthenticated
from onejob.api.http.app import Access, ApiApp
from onejob.api.http.connection import Connection as ServerConnection
from onejob.api.http.connection import OpenConnections
from onejob.api.http.server_pages import ServerPages
from onejob.api.schema.openapi import OpenApiDocuments
from onejob.client.credentials import Credential, FixedCredential
from onejob.client.kubeconfig import Connection
from onejob.control_plane import ControlPlane
from onejob.wire.requests import User

TOKEN = "simulated"


class _Anyone:
    def authenticate(self, credentials: Credentials) -> User | None:
        return User("replica", groups=("system:authenticated",))


def front(plane: ControlPlane, rng: Random) -> Callable[[], asyncio.Protocol]:
    """Return a protocol factory that accepts connections to the plane's API."""
    app = ApiApp(
        plane.service,
        access=Access(_Anyone(), AllowAuthenticated()),
        pages=ServerPages(
            plane.service.schema.release,
            OpenApiDocuments(plane.service.schema, plane.service.kinds),
            plane.metrics,
        ),
        rng=rng,
        metrics=plane.metrics,
    )
    connections = OpenConnections(app, plane.clock)
    loop = asyncio.get_running_loop()
    return lambda: ServerConnection(connections, loop)


def connection_to(host: str) -> Connection:
    """Return the client's connection settings for a simulated host."""
    return Connection(
        f"http://{host}", FixedCredential(Credential(f"Bearer {TOKEN}")), compress=False
    )
