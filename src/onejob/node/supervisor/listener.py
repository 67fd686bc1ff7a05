"""Listening socket of the supervisor, recreated if its file is removed."""

import contextlib
import os
import socket

_NAME = "socket"


class Listener:
    """Socket in a folder, given by a descriptor: the path of a socket is limited to 107 bytes, and
    the descriptor stays valid if the folder is moved."""

    def __init__(self, folder: int, sock: socket.socket) -> None:
        self.sock = sock
        self._folder = folder
        self._inode = self._socket_inode()

    def is_found(self) -> bool:
        """Return whether the socket's file still exists."""
        found = self._socket_inode()
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
        self._inode = self._socket_inode()

    def _socket_inode(self) -> int:
        """Return the inode of the socket file; 0 if it does not exist."""
        try:
            return os.stat(_NAME, dir_fd=self._folder).st_ino
        except FileNotFoundError:
            return 0


def address(folder: int) -> str:
    """Return the socket's path relative to an open folder: shorter than the limit of socket
    addresses."""
    return f"/proc/self/fd/{folder}/{_NAME}"


def bind(folder: int, sock: socket.socket) -> None:
    """Listen in the folder, replacing any existing socket file. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_NAME, dir_fd=folder)
    sock.bind(address(folder))
    os.chmod(_NAME, 0o600, dir_fd=folder)
    sock.listen(16)
