"""Bounded calls of onejob's own commands, each in a child process.

A tool is a command with a limit on time and output. Access is that of the kubeconfig, as for any
other client: this module adds no path around the API server.
"""

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

#: Maximum number of characters of one answer.
MAX_OUTPUT: Final = 20_000
#: Maximum duration of a call, apart from what the command itself waits for.
TIMEOUT_SECONDS: Final = 60
_MAX_CALLS: Final = 4


@dataclass(frozen=True)
class Answer:
    exit_code: int
    text: str


@dataclass(frozen=True)
class Commands:
    """Commands of onejob against one server and namespace."""

    #: `--data-dir`, `--kubeconfig` and `--namespace` of every call.
    where: Sequence[str]
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_MAX_CALLS))

    async def call(self, *words: str, stdin: str = "", waiting_seconds: float = 0) -> Answer:
        """Run one command; its output is cut off at MAX_OUTPUT."""
        async with self._slots:
            process = await asyncio.create_subprocess_exec(
                # -P: the working directory is no place to import from.
                *(sys.executable, "-P", "-m", "onejob", *words, *self.where),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            limit = TIMEOUT_SECONDS + waiting_seconds
            try:
                text = await asyncio.wait_for(_exchange(process, stdin), limit)
            except TimeoutError:
                return Answer(1, f"error: no answer within {limit:.0f} s")
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
        return Answer(process.returncode or 0, text)


async def _exchange(process: asyncio.subprocess.Process, stdin: str) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    sending = asyncio.create_task(_send(process.stdin, stdin))
    received = bytearray()
    try:
        while chunk := await process.stdout.read(4096):
            received += chunk
            if len(received) > MAX_OUTPUT:
                note = f"\n[cut off after {MAX_OUTPUT} characters: ask for less]"
                return received[:MAX_OUTPUT].decode(errors="replace") + note
        await process.wait()
    finally:
        sending.cancel()
    return received.decode(errors="replace").rstrip("\n")


async def _send(pipe: asyncio.StreamWriter, text: str) -> None:
    pipe.write(text.encode())
    try:
        await pipe.drain()
    except (BrokenPipeError, ConnectionResetError):
        return  # The command ended without reading its input.
    pipe.close()
