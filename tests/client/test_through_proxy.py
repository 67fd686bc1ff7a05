"""Requests and watches through a proxy that tunnels opaque bytes."""

import asyncio
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from onejob.client.answers import Unreachable, Untrusted
from onejob.client.base import Selection
from onejob.client.http import HttpClient
from onejob.client.kubeconfig import Connection, load_kubeconfig
from onejob.clock import SystemClock
from onejob.objects.meta import NAMESPACES, Key
from tests.harness import running_http

DEFAULT = Key(NAMESPACES, "", "default")


class Proxy:
    """CONNECT proxy that records the requested targets."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        method, target, _ = head.splitlines()[0].split()
        self.asked.append(f"{method} {target}")
        host, _, port = target.rpartition(":")
        there_reader, there = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(self._pump(reader, there), self._pump(there_reader, writer))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            # The end of either side ends both.
            pass
        finally:
            writer.close()


async def ask(connection: Connection) -> None:
    client = HttpClient(connection, rng=Random(1))
    try:
        assert b'"default"' in await client.get(DEFAULT)
        async with aclosing(client.watch(Selection(NAMESPACES), after=0)) as batches:
            assert (await anext(batches))[0].key == DEFAULT
    finally:
        await client.close()


async def test_a_proxy_leads_to_the_server_and_the_certificate_is_still_checked(
    tmp_path: Path,
) -> None:
    proxy = Proxy()
    async with (
        running_http(tmp_path) as plane,
        await asyncio.start_server(proxy.serve, "127.0.0.1", 0) as server,
        asyncio.timeout(30),
    ):
        port = server.sockets[0].getsockname()[1]
        direct = load_kubeconfig(plane.kubeconfig, SystemClock())
        proxied = replace(direct, proxy=f"http://127.0.0.1:{port}")
        await ask(proxied)
        assert set(proxy.asked) == {f"CONNECT {direct.server.removeprefix('https://')}"}
        await ask(replace(proxied, tls_server_name="localhost"))
        for doubtful in (
            replace(proxied, authority=b""),
            replace(proxied, tls_server_name="other"),
        ):
            with pytest.raises(Untrusted, match="has an untrusted certificate"):
                await ask(doubtful)
        with pytest.raises(Unreachable):
            await ask(replace(direct, proxy="http://127.0.0.1:1"))
