"""WebSocket sessions with Pods. Imported only when a session is opened."""

from collections.abc import Sequence
from typing import Any, Final

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidHandshake, InvalidStatus
from websockets.typing import Subprotocol

from onejob import __version__
from onejob.client.answers import error_of, unreachable
from onejob.client.credentials import Credential
from onejob.client.kubeconfig import Connection
from onejob.client.tls import tls_context

_OPEN_SECONDS: Final = 10.0
_PING_SECONDS: Final = 30.0


class _Connect(connect):
    """Connection that follows no redirects: credentials are for this server only."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


async def open_web_socket(
    connection: Connection, credential: Credential, target: str, protocols: Sequence[str]
) -> ClientConnection:
    """Open a WebSocket; the caller closes it.

    Raises ApiError if the server refuses or is unreachable.
    """
    options: dict[str, Any] = {}
    if connection.server.startswith("https:"):
        options["ssl"] = tls_context(connection, credential)
        if connection.tls_server_name:
            options["server_hostname"] = connection.tls_server_name
    headers = {"Authorization": credential.authorization} if credential.authorization else {}
    try:
        return await _Connect(
            f"ws{connection.server.removeprefix('http')}{target}",
            subprotocols=[Subprotocol(protocol) for protocol in protocols],
            additional_headers=headers,
            user_agent_header=f"onejob/{__version__}",
            compression=None,
            proxy=connection.proxy or None,
            max_size=None,
            open_timeout=_OPEN_SECONDS,
            ping_interval=_PING_SECONDS,
            **options,
        )
    except InvalidStatus as refusal:
        response = refusal.response
        raise error_of(response.status_code, bytes(response.body or b"")) from refusal
    except (InvalidHandshake, OSError) as error:
        raise unreachable(error, connection.server) from error
