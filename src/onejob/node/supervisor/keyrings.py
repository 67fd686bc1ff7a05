"""Kernel keyrings of the host, kept out of a container that may reach nothing of it.

Keyrings belong to sessions and to users, not to files or namespaces. A session keyring of its own
hides those of the session that the supervisor was started in; but a process can link the keyring
of its user, for instance root's, into its own and read it. So the three system calls that lead to
keyrings fail, as they do under container engines.
"""

import errno
import os
import struct
from collections.abc import Iterator, Sequence

from onejob.node.supervisor import linux
from onejob.node.supervisor.failures import SetupFailed

_JOIN_SESSION_KEYRING = 1
_X32_BIT = 0x40000000
#: By machine: each kind of program that it runs (AUDIT_ARCH_*), with add_key, request_key, keyctl.
_CALLS: dict[str, tuple[tuple[int, tuple[int, int, int]], ...]] = {
    "x86_64": ((0xC000003E, (248, 249, 250)), (0x40000003, (286, 287, 288))),
    "i686": ((0x40000003, (286, 287, 288)),),
    "aarch64": ((0xC00000B7, (217, 218, 219)), (0x40000028, (309, 310, 311))),
    "armv7l": ((0x40000028, (309, 310, 311)),),
    "riscv64": ((0xC00000F3, (217, 218, 219)),),
    "loongarch64": ((0xC0000102, (217, 218, 219)),),
    "ppc64le": ((0xC0000015, (269, 270, 271)),),
    "s390x": ((0x80000016, (278, 279, 280)),),
}

_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
#: Where `struct seccomp_data` has the number of a call and the kind of the program.
_NUMBER, _ARCHITECTURE = 0, 4
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000 | errno.EPERM


def keep_out() -> None:
    """Leave the session keyring of the host, for good. Raises SetupFailed and OSError."""
    machine = os.uname().machine
    calls = _CALLS.get(machine)
    if calls is None:
        why = f"kernel keyrings of the host cannot be kept out: unknown machine {machine}"
        raise SetupFailed("ContainerCannotRun", why)
    try:
        linux.system_call(calls[0][1][2], _JOIN_SESSION_KEYRING, None)
    except OSError as error:
        # A kernel without keyrings; or we run in a container whose engine has blocked them.
        if error.errno not in (errno.ENOSYS, errno.EPERM):
            raise
    linux.filter_system_calls(b"".join(_program(calls)))


def _program(calls: Sequence[tuple[int, tuple[int, int, int]]]) -> Iterator[bytes]:
    """A filter by which these calls fail and all others go through."""
    blocks = [(kind, _numbers(kind, numbers)) for kind, numbers in calls]
    left = sum(len(numbers) + 4 for _, numbers in blocks) + 1
    for kind, numbers in blocks:
        yield _instruction(_LOAD, _ARCHITECTURE)
        # To the next kind.
        yield _instruction(_JUMP_IF_EQUAL, kind, otherwise=len(numbers) + 2)
        yield _instruction(_LOAD, _NUMBER)
        left -= 3
        for number in numbers:
            left -= 1
            yield _instruction(_JUMP_IF_EQUAL, number, then=left)
        left -= 1
        yield _instruction(_RETURN, _ALLOW)
    yield _instruction(_RETURN, _ALLOW)
    yield _instruction(_RETURN, _FAIL)


def _numbers(kind: int, numbers: tuple[int, int, int]) -> tuple[int, ...]:
    if kind != _CALLS["x86_64"][0][0]:
        return numbers
    # The same calls by another calling convention.
    return (*numbers, *(number | _X32_BIT for number in numbers))


def _instruction(code: int, value: int, *, then: int = 0, otherwise: int = 0) -> bytes:
    return struct.pack("=HBBI", code, then, otherwise, value)
