"""The socket on which a supervisor can be reached, made again should somebody remove it."""

import contextlib
import os
import socket

_NAME = "socket"


class Listener:
    """`folder` is a descriptor: the path of a socket may only be 107 bytes long, and a folder
    that is moved stays the same."""

    def __init__(self, folder: int, sock: socket.socket) -> None:
        self.sock = sock
        self._folder = folder
        self._inode = self._found()

    def is_found(self) -> bool:
        """Whether the socket still has its name."""
        found = self._found()
        return found != 0 and found == self._inode

    def renew(self) -> None:
        """Listen on a new socket in place of this one. Raises OSError."""
        fresh = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            bind(self._folder, fresh)
        except OSError:
            fresh.close()
            raise
        self.sock.close()
        self.sock = fresh
        self._inode = self._found()

    def _found(self) -> int:
        try:
            return os.stat(_NAME, dir_fd=self._folder).st_ino
        except FileNotFoundError:
            return 0


def address(folder: int) -> str:
    return f"/proc/self/fd/{folder}/{_NAME}"


def bind(folder: int, sock: socket.socket) -> None:
    """Have the socket listen in the folder, in place of any that was there. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_NAME, dir_fd=folder)
    sock.bind(address(folder))
    os.chmod(_NAME, 0o600, dir_fd=folder)
    sock.listen(16)
