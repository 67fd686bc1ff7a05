"""Minimal HTTPS client for load tests: the server is to be measured, not the client."""

import asyncio
import base64
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import yaml

_READ_BYTES = 256 * 1024
_LAST_WORDS_BYTES = 300
_CRUMB_BYTES = 1024
_CRUMB_SECONDS = 0.5


class Address(NamedTuple):
    host: str
    port: int
    tls: ssl.SSLContext
    token: str = ""


class LoadResponse(NamedTuple):
    """HTTP response, whatever its status code; error responses are not raised."""

    code: int
    body: bytes


def address_of(kubeconfig: Path) -> Address:
    """Return the address in a kubeconfig written by `onejob serve`."""
    config = yaml.safe_load(kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
    place = urlsplit(cluster["server"])
    assert place.hostname is not None
    assert place.port is not None
    tls = ssl.create_default_context(cadata=authority)
    return Address(place.hostname, place.port, tls, user["token"])


class LoadConnection:
    """Keep-alive connection; one request at a time."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def open(self) -> None:
        # Lists are long; the default limit is meant for lines, but bounds reads as well.
        self._reader, self._writer = await asyncio.open_connection(
            self._address.host, self._address.port, ssl=self._address.tls, limit=2**20
        )

    async def close(self) -> None:
        self._writer.close()
        await asyncio.gather(self._writer.wait_closed(), return_exceptions=True)

    async def ask(
        self, method: str, target: str, body: bytes = b"", accept: str = "application/json"
    ) -> LoadResponse:
        """Send a request and return the response."""
        code, length = await self._head(method, target, body, accept)
        if length is not None:
            return LoadResponse(code, await self._reader.readexactly(length))
        chunks: list[bytes] = []
        while chunk := await self._chunk():
            chunks.append(chunk)
        return LoadResponse(code, b"".join(chunks))

    async def lines(self, target: str, enough: Callable[[int], bool]) -> None:
        """Read a watch until `enough` returns True for the number of lines read."""
        code, _ = await self._head("GET", target, b"")
        assert code == 200, f"{target} was answered with {code}"
        seen = 0
        while not enough(seen):
            seen += (await self._chunk()).count(b"\n")

    async def until(self, target: str, end: bytes) -> None:
        """Read a watch until `end` occurs in it.

        Raises RuntimeError if the server closes it before.
        """
        code, _ = await self._head("GET", target, b"")
        assert code == 200, f"{target} was answered with {code}"
        seen = b""
        while end not in seen:
            seen = seen[-_LAST_WORDS_BYTES:]
            piece = await self._reader.read(_READ_BYTES)
            if not piece:
                raise RuntimeError(f"{target} was ended: {seen.decode(errors='replace')}")
            seen += piece

    async def hardly_read(self, target: str) -> None:
        """Read a watch very slowly, until cancelled: a lagging client."""
        await self._head("GET", target, b"")
        while True:
            await asyncio.sleep(_CRUMB_SECONDS)
            if not await self._reader.read(_CRUMB_BYTES):
                return

    async def _chunk(self) -> bytes:
        size = int(await self._reader.readuntil(b"\r\n"), 16)
        return (await self._reader.readexactly(size + 2))[:-2]

    async def _head(
        self, method: str, target: str, body: bytes, accept: str = "application/json"
    ) -> tuple[int, int | None]:
        first, token = f"{method} {target}".encode(), self._address.token.encode()
        self._writer.write(
            b"%s HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer %s\r\naccept: %s\r\n"
            b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%s"
            % (first, token, accept.encode(), len(body), body)
        )
        head = await self._reader.readuntil(b"\r\n\r\n")
        code = int(head[9:12])
        found = head.lower().find(b"content-length:")
        if found < 0:
            return code, None
        return code, int(head[found + 15 : head.index(b"\r\n", found)])


async def per_second(
    connections: Sequence[LoadConnection], requests: Iterator[tuple[str, str, bytes]], *, code: int
) -> tuple[float, int]:
    """Send all requests, one at a time per connection; return the rate per second and the total."""
    done = 0

    async def work(connection: LoadConnection) -> None:
        nonlocal done
        # All connections share one iterator, so that none is idle before the end.
        for method, target, body in requests:
            reply = await connection.ask(method, target, body)
            if reply.code != code:
                raise RuntimeError(f"{method} {target}: {reply.code} {reply.body.decode()}")
            done += 1

    start = time.perf_counter()
    await asyncio.gather(*map(work, connections))
    return done / (time.perf_counter() - start), done
