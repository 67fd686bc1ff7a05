"""HTTP client with a scripted server."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from onejob.client.credentials import Credential, CredentialSource, FixedCredential
from onejob.client.http import HttpClient
from onejob.client.kubeconfig import Connection

ANYONE = FixedCredential(Credential("Bearer t"))

#: Gets the request's head and writes a response.
Handler = Callable[[str, asyncio.StreamWriter], Awaitable[None]]

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def talking_to(
    handler: Handler | None,
    credentials: CredentialSource = ANYONE,
    *,
    serve: Serve | None = None,
    **options: Any,
) -> AsyncIterator[HttpClient]:
    """Connect a client to a server whose every byte the test chooses.

    The server is a handler of requests, or one of whole connections.
    """

    async def serve_handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                for line in head.lower().split("\r\n"):
                    if line.startswith("content-length:"):
                        await reader.readexactly(int(line.partition(":")[2]))
                assert handler is not None
                await handler(head, writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(serve or serve_handler, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    connection = Connection(f"http://127.0.0.1:{port}", credentials)
    client = HttpClient(connection, rng=Random(1), **options)
    try:
        yield client
    finally:
        await client.close()
        server.close()


def answer(code: int, body: bytes, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {code} X", f"content-length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def status(code: int, reason: str, message: str = "no") -> bytes:
    return json.dumps(
        {"kind": "Status", "status": "Failure", "reason": reason, "message": message, "code": code}
    ).encode()
