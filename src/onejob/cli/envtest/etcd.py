"""etcd stand-in for envtest: reports itself healthy, stores nothing and exits on SIGTERM.

onejob keeps its state itself. Imports little, because every test suite waits for it to start.
"""

import os
import select
import signal
import socket
import sys
from collections.abc import Sequence
from typing import Final

from onejob.cli.envtest.flags import UnsupportedFlag, read_flags

#: envtest searches this text for --unsafe-no-fsync, and passes that flag if it finds it.
_HELP: Final = """\
etcd for envtest, by onejob: it answers /health and stores nothing

  --listen-client-urls 'http://localhost:2379'
  --unsafe-no-fsync

Other flags are accepted and have no effect.
"""
_KNOWN: Final = frozenset(
    {
        *("advertise-client-urls", "data-dir", "listen-client-urls", "listen-peer-urls"),
        "unsafe-no-fsync",
    }
)
_MAX_BYTES: Final = 16_384
#: Seconds for a client to send its request; other clients wait meanwhile.
_PATIENCE: Final = 1.0


def main(arguments: Sequence[str]) -> int:
    if {"-h", "--help"} & set(arguments):
        sys.stdout.write(_HELP)
        return 0
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os._exit(0))
    try:
        flags = dict(read_flags(arguments))
        urls = flags.get("listen-client-urls") or "http://localhost:2379"
        listeners = [_listen(url.strip()) for url in urls.split(",")]
    except (UnsupportedFlag, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for name in flags.keys() - _KNOWN:
        print(f"note: unknown flag --{name} has no effect", file=sys.stderr, flush=True)
    while True:
        for listener in select.select(listeners, [], [])[0]:
            _serve_one(listener)


def _listen(url: str) -> socket.socket:
    scheme, _, address = url.partition("://")
    host, _, port = address.rstrip("/").rpartition(":")
    if scheme != "http" or not port.isdigit():
        raise UnsupportedFlag(f"--listen-client-urls={url}: expected http://HOST:PORT")
    host = host.removeprefix("[").removesuffix("]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, int(port)), family=family)
    except (OSError, OverflowError) as error:
        raise UnsupportedFlag(f"cannot listen on {url}: {error}") from error


def _serve_one(listener: socket.socket) -> None:
    try:
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(_PATIENCE)
            connection.sendall(_answer(_read_head(connection)))
    except OSError:
        # The client disconnected or sent nothing: only its own connection is lost.
        return


def _read_head(connection: socket.socket) -> bytes:
    head = b""
    while b"\r\n\r\n" not in head and len(head) < _MAX_BYTES:
        received = connection.recv(4096)
        if not received:
            break
        head += received
    return head


def _answer(head: bytes) -> bytes:
    words = head.split(maxsplit=2)
    healthy = len(words) > 1 and words[1].partition(b"?")[0] == b"/health"
    status = b"200 OK" if healthy else b"404 Not Found"
    body = b'{"health":"true","reason":""}' if healthy else b"onejob keeps its state elsewhere\n"
    return (
        b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"
        b"Connection: close\r\n\r\n%b" % (status, len(body), body)
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
