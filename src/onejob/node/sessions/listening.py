"""Listening TCP ports of processes, from /proc. Blocking: call these functions in a worker
thread."""

import ipaddress
import os
import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

_LISTENING: Final = "0A"
_socket: Final = re.compile(r"socket:\[(\d+)\]").fullmatch


@dataclass(frozen=True, slots=True)
class Listener:
    """Listening socket of a process."""

    address: str
    port: int
    #: Inode of the socket, by which its owner is identified.
    inode: int

    @property
    def reachable_at(self) -> str:
        """Address to connect to: the loopback for a socket that listens on all addresses."""
        address = ipaddress.ip_address(self.address)
        if not address.is_unspecified:
            return self.address
        return "127.0.0.1" if address.version == 4 else "::1"


def listeners(port: int, first_process: int) -> list[Listener]:
    """Return all sockets that listen on this port, in the network namespace of the process."""
    found = []
    for table in ("tcp", "tcp6"):
        try:
            with open(f"/proc/{first_process}/net/{table}", encoding="ascii") as file:
                lines = file.read().splitlines()[1:]
        except OSError:
            # The process has ended, or the kernel has no IPv6.
            continue
        for line in lines:
            fields = line.split()
            address, _, number = fields[1].partition(":")
            if fields[3] == _LISTENING and int(number, 16) == port:
                found.append(Listener(_address(address), port, int(fields[9])))
    return found


def sockets_of(pids: Iterable[int]) -> set[int]:
    """Return the inodes of all sockets that these processes have open."""
    found = set()
    for pid in pids:
        try:
            names = os.listdir(f"/proc/{pid}/fd")
        except OSError:
            continue
        for name in names:
            try:
                target = os.readlink(f"/proc/{pid}/fd/{name}")
            except OSError:
                continue
            if match := _socket(target):
                found.add(int(match[1]))
    return found


def _address(text: str) -> str:
    """Parse an address of the kernel: 32-bit words in hexadecimal, each in host byte order."""
    words = [int(text[start : start + 8], 16) for start in range(0, len(text), 8)]
    packed = b"".join(struct.pack("=I", word) for word in words)
    return str(ipaddress.ip_address(packed))
