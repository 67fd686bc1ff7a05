"""Append-only files of lines, the channel between server and pilot over a shared folder.

Limited to the standard library: the pilot runs without site packages.

Network file systems guarantee that a file which is opened after its writer closed it has all of its
contents (close-to-open consistency). Therefore the files have fixed names and exist before the
other side looks for them, and both sides open and close them for every access. A client that caches
an old size shows fewer bytes, or zeros in their place, until a later read.
"""

import os

_READ_BYTES = 1 << 20
_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW


class Outbox:
    """Writer of a file, its only one at a time.

    Guarantees: `append` writes whole lines after whatever an interrupted writer left, so that a
    torn line never joins a later one.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        #: Whether the file ends with a line break.
        self._intact = False
        #: Size of the file after the last write.
        self.end = 0

    def append(self, lines: bytes) -> None:
        """Append complete lines. Raises OSError; part of them may have been written then."""
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | _FLAGS, 0o600)
        try:
            size = os.fstat(fd).st_size
            if not self._intact and size and os.pread(fd, 1, size - 1) != b"\n":
                lines = b"\n" + lines
            self._intact = False
            left = memoryview(lines)
            while left:
                left = left[os.write(fd, left) :]
            self.end = os.fstat(fd).st_size
        finally:
            # Errors of network file systems, such as an exceeded quota, are reported here.
            os.close(fd)
        self._intact = True


class Inbox:
    """Reader of a file, from `offset` on."""

    def __init__(self, path: str, offset: int = 0) -> None:
        self._path = path
        #: End of the last line that was returned.
        self.offset = offset

    def read(self) -> list[tuple[bytes, int]]:
        """Return the new complete lines, each with the offset of its end. Raises OSError."""
        fd = os.open(self._path, os.O_RDONLY | _FLAGS)
        try:
            if os.fstat(fd).st_size <= self.offset:
                return []
            data = os.pread(fd, _READ_BYTES, self.offset)
            while b"\n" not in data and len(data) % _READ_BYTES == 0 and data:
                more = os.pread(fd, _READ_BYTES, self.offset + len(data))
                if not more:
                    break
                data += more
        finally:
            os.close(fd)
        # Zeros are bytes that a network file system announces before it has them.
        data = data.partition(b"\0")[0]
        lines = []
        for line in data.split(b"\n")[:-1]:
            self.offset += len(line) + 1
            lines.append((line, self.offset))
        return lines
