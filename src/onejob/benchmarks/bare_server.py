"""Minimal HTTPS server that answers every request with the same document: the limit of any API.

    python -m onejob.benchmarks.bare_server CERTIFICATE KEY PORT_FILE

Imports no part of onejob: its memory is a limit too.
"""

import asyncio
import os
import ssl
import sys
from pathlib import Path
from typing import Any

import httptools
import uvloop

#: About the size of a Pod.
_BODY = b'{"filler":"' + b"x" * 1_900 + b'"}'
_ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (
    len(_BODY),
    _BODY,
)


class _Answering(asyncio.Protocol):
    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._parser = httptools.HttpRequestParser(self)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        self._transport.write(_ANSWER)


async def serve(certificate: str, key: str, port_file: Path) -> None:
    """Serve until killed. The port file is written once the server accepts requests."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    server = await asyncio.get_running_loop().create_server(_Answering, "127.0.0.1", 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    unfinished = port_file.with_suffix(".new")
    unfinished.write_text(str(port))
    os.replace(unfinished, port_file)
    await server.serve_forever()


if __name__ == "__main__":
    certificate, key, port_file = sys.argv[1:]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(certificate, key, Path(port_file)))
