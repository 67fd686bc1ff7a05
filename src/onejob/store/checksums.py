"""Row checksums: a CRC-32 per row of the log, over its bytes as stored on disk.

SQLite checks the structure of its pages, not their content: a bit flip within a document, a name or
a revision would be served. Name and namespace are also in the document itself. Of the other
columns, the checksum covers resource and revision; the order of the log covers `previous`.
"""

from functools import lru_cache
from zlib import crc32

#: Sentinel for a document whose bytes differ from the ones written. Compared by identity.
DAMAGED = b"\0damaged"


def checksum(revision: int, resource: str, stored: bytes | None) -> int:
    """Return the CRC-32 of a row; `stored` is None for a deletion."""
    return crc32(stored if stored is not None else b"deleted", seed(resource) ^ revision & _32_BITS)


def is_intact(revision: int, resource: str, stored: object, expected: object) -> bool:
    """Return whether a row matches its checksum. Rows older than schema 2 have none and pass."""
    if stored is not None and not isinstance(stored, bytes):
        return False
    return expected is None or checksum(revision, resource, stored) == expected


@lru_cache(maxsize=256)
def seed(resource: str) -> int:
    """Return the start value of the checksums of a resource's rows, from a cache."""
    # A name with a lone surrogate was not written by onejob; this function must not raise for it.
    return crc32(resource.encode(errors="surrogatepass"))


_32_BITS = 0xFFFFFFFF
