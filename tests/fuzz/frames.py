"""Coverage-guided fuzzing of client input, `make fuzz-frames`.

The inputs are protobuf bodies, frames of SPDY, and messages of WebSockets. Only the errors defined
for them may be raised. Run in an environment of its own, which has atheris: see the Makefile.
"""

import sys
from contextlib import suppress

import atheris  # type: ignore[import-untyped]

with atheris.instrument_imports(include=["onejob"]):
    from onejob.api.decoding.protobuf import decode_protobuf
    from onejob.api.schema.protobuf_encoding import encode_object
    from onejob.api.schema.protobuf_table import MAGIC
    from onejob.api.sessions.channels import Channels
    from onejob.api.sessions.socket import AbandonedSocket
    from onejob.api.sessions.spdy import SpdyError, SpdyReader
    from onejob.wire.errors import ApiError

import msgspec


def try_protobuf(data: bytes) -> None:
    with suppress(ApiError):
        document = decode_protobuf(MAGIC + data)
        # A decoded document is JSON that can be encoded and decoded again.
        encode_object(msgspec.json.encode(document))


def try_spdy(data: bytes) -> None:
    reader = SpdyReader()
    with suppress(SpdyError):
        for start in range(0, len(data), 61):
            for _ in reader.feed(data[start : start + 61]):
                pass


def try_channels(data: bytes) -> None:
    for protocol in ("v5.channel.k8s.io", "base64.channel.k8s.io"):
        channels = Channels(AbandonedSocket(), protocol)
        for message in (data, data.decode("utf-8", "replace")):
            assert all(channel >= -ord("0") for channel, _ in channels.parse(message))


_TRIALS = (try_protobuf, try_spdy, try_channels)


def try_bytes(data: bytes) -> None:
    if data:
        _TRIALS[data[0] % len(_TRIALS)](data[1:])


if __name__ == "__main__":
    atheris.Setup(sys.argv, try_bytes)
    atheris.Fuzz()
