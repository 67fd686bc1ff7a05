"""A checksum per row of the log, of its bytes as they are on disk.

SQLite checks the structure of its pages, not what is in them: a bit that is flipped within a
document, a name or a revision would be served. Name and namespace are in the document itself; of
the other columns, resource and revision are covered here, and `previous` by the order of the log.
"""

from functools import lru_cache
from zlib import crc32

#: Stands for a document whose bytes are not those that were written. Compared by identity.
DAMAGED = b"\0damaged"


def checksum(revision: int, resource: str, stored: bytes | None) -> int:
    """`stored` None is a deletion."""
    return crc32(stored if stored is not None else b"deleted", seed(resource) ^ revision & _32_BITS)


def is_intact(revision: int, resource: str, stored: object, expected: object) -> bool:
    """Rows that were written before there were checksums have none."""
    if stored is not None and not isinstance(stored, bytes):
        return False
    return expected is None or checksum(revision, resource, stored) == expected


@lru_cache(maxsize=256)
def seed(resource: str) -> int:
    # With a lone surrogate it is no name that we wrote, and must not raise.
    return crc32(resource.encode(errors="surrogatepass"))


_32_BITS = 0xFFFFFFFF
