"""Seed corpus of `make fuzz-frames`: valid inputs of each sort."""

import sys
from pathlib import Path

import msgspec

from onejob.api.schema.protobuf_encoding import encode_object
from onejob.api.schema.protobuf_table import MAGIC
from onejob.api.sessions.spdy import SpdyWriter
from tests.api.recorded_definitions import recorded
from tests.fuzz.state_machine import PLACES


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, place in PLACES.items():
        metadata = {"name": "a", "labels": {"color": "red"}, "finalizers": ["example.com/hold"]}
        document = {"apiVersion": place.api_version, "kind": place.kind, "metadata": metadata}
        body = encode_object(msgspec.json.encode(document | place.body))
        (folder / name).write_bytes(b"\0" + body.removeprefix(MAGIC))
    for name, definition in recorded().items():
        (folder / name.replace(" ", "-")).write_bytes(b"\0" + definition.removeprefix(MAGIC))
    (folder / "spdy").write_bytes(b"\1" + SpdyWriter().open(1, {"port": "80", "requestid": "0"}))
    (folder / "channel").write_bytes(b"\2\x001aGVsbG8=")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
