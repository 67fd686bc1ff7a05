"""Isolation of sealed containers from the host's kernel keyrings.

Keyrings belong to sessions and users, not to files or namespaces. A session keyring of its own
hides the keyring of the supervisor's session; but a process can link the keyring of its user, for
example root's, into its own and read it. A seccomp filter therefore blocks the three system calls
that access keyrings, as container engines do.
"""

import errno
import os
import struct
from collections.abc import Iterator, Sequence

from onejob.node.supervisor import linux
from onejob.node.supervisor.failures import SetupFailed

_JOIN_SESSION_KEYRING = 1
_X32_BIT = 0x40000000
#: By machine: each program architecture it runs (AUDIT_ARCH_*), with the numbers of add_key,
#: request_key and keyctl.
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
#: Offsets of the call number and the architecture in `struct seccomp_data`.
_NUMBER, _ARCHITECTURE = 0, 4
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000 | errno.EPERM


def keep_out() -> None:
    """Leave the host's session keyring permanently. Raises SetupFailed and OSError."""
    machine = os.uname().machine
    calls = _CALLS.get(machine)
    if calls is None:
        why = f"cannot isolate kernel keyrings: unknown machine {machine}"
        raise SetupFailed("ContainerCannotRun", why)
    try:
        linux.system_call(calls[0][1][2], _JOIN_SESSION_KEYRING, None)
    except OSError as error:
        # The kernel has no keyrings, or we run in a container whose engine blocks them.
        if error.errno not in (errno.ENOSYS, errno.EPERM):
            raise
    linux.filter_system_calls(b"".join(_program(calls)))


def _program(calls: Sequence[tuple[int, tuple[int, int, int]]]) -> Iterator[bytes]:
    """Yield a BPF program that makes these calls fail and allows all others."""
    blocks = [(kind, _syscall_numbers(kind, numbers)) for kind, numbers in calls]
    left = sum(len(numbers) + 4 for _, numbers in blocks) + 1
    for kind, numbers in blocks:
        yield _instruction(_LOAD, _ARCHITECTURE)
        # Skip to the next architecture.
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


def _syscall_numbers(kind: int, numbers: tuple[int, int, int]) -> tuple[int, ...]:
    if kind != _CALLS["x86_64"][0][0]:
        return numbers
    # The same calls in the x32 calling convention.
    return (*numbers, *(number | _X32_BIT for number in numbers))


def _instruction(code: int, value: int, *, then: int = 0, otherwise: int = 0) -> bytes:
    return struct.pack("=HBBI", code, then, otherwise, value)
