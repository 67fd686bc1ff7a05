"""SPDY frames: encoding and decoding."""

import struct
import zlib

import pytest

from onejob.api.sessions.spdy import (
    DICTIONARY,
    GoingAway,
    Pinged,
    SpdyError,
    SpdyReader,
    SpdyWriter,
    StreamData,
    StreamOpened,
    StreamReset,
)

HEADERS = {"streamtype": "data", "port": "8080", "requestid": "0"}


def test_the_dictionary_is_the_one_that_everybody_has() -> None:
    # zlib writes this checksum into a stream that was compressed with the dictionary.
    assert zlib.adler32(DICTIONARY) == 0xE3C6A7C2


@pytest.mark.parametrize("step", [1, 7, 10_000])
def test_frames_are_parsed_from_arbitrary_pieces(step: int) -> None:
    writer, reader = SpdyWriter(), SpdyReader()
    sent = b"".join(
        (
            writer.open(1, HEADERS),
            writer.data(1, b"hello"),
            writer.open(3, HEADERS | {"streamtype": "error"}),
            writer.data(1, b"", ends=True),
            writer.reset(3),
            writer.ping(5),
            writer.go_away(3),
        )
    )
    events = [
        event
        for start in range(0, len(sent), step)
        for event in reader.feed(sent[start : start + step])
    ]
    assert events == [
        StreamOpened(1, HEADERS, ended=False),
        StreamData(1, b"hello", ended=False),
        StreamOpened(3, HEADERS | {"streamtype": "error"}, ended=False),
        StreamData(1, b"", ended=True),
        StreamReset(3),
        Pinged(5),
        GoingAway(),
    ]


def test_a_stream_is_accepted_with_a_reply_in_the_same_compression() -> None:
    writer = SpdyWriter()
    plain = zlib.decompressobj(zdict=DICTIONARY)
    for stream in (1, 3):
        frame = writer.accept(stream)
        assert struct.unpack(">HHII", frame[:12]) == (0x8003, 2, len(frame) - 8, stream)
        assert plain.decompress(frame[12:]) == struct.pack(">I", 0)


def _opening(block: bytes) -> bytes:
    payload = struct.pack(">IIH", 1, 0, 0) + block
    return struct.pack(">HHI", 0x8003, 1, len(payload)) + payload


def _compressed(plain: bytes) -> bytes:
    compressor = zlib.compressobj(zdict=DICTIONARY)
    return compressor.compress(plain) + compressor.flush(zlib.Z_SYNC_FLUSH)


@pytest.mark.parametrize(
    "data",
    [
        b"\0\0\0\1\0\xff\xff\xff",
        _opening(b"not compressed"),
        _opening(_compressed(bytes(1024 * 1024))),
        _opening(_compressed(struct.pack(">I", 1))),
        _opening(_compressed(struct.pack(">II", 1, 2**31) + b"x")),
        _opening(_compressed(struct.pack(">II", 1, 1) + b"\xff" + struct.pack(">I", 0))),
        struct.pack(">HHI", 0x8003, 3, 1) + b"x",
    ],
    ids=["long frame", "no zlib", "bomb", "no pairs", "long name", "no text", "short reset"],
)
def test_invalid_spdy_is_rejected(data: bytes) -> None:
    with pytest.raises(SpdyError):
        list(SpdyReader().feed(data))


def test_other_frames_are_passed_over() -> None:
    settings = struct.pack(">HHI", 0x8003, 4, 4) + bytes(4)
    window = struct.pack(">HHI", 0x8003, 9, 8) + bytes(8)
    assert list(SpdyReader().feed(settings + window)) == []
