"""Question after Ctrl-C: leave the Jobs of a remote run, or delete them."""

import asyncio
import os
import sys
from typing import Any, Literal

Answer = Literal["detach", "delete", "ended"]


async def ask_detach_or_delete(second: asyncio.Event, following: "asyncio.Future[Any]") -> Answer:
    """Return the answer; `second` is the second Ctrl-C, which deletes.

    "ended" if the run ends before there is an answer. The end of the input means detach.
    """
    print(
        "\nThe Jobs run on the cluster. Enter leaves them there, d and Enter (or Ctrl-C) deletes "
        "them: ",
        end="",
        file=sys.stderr,
        flush=True,
    )
    loop = asyncio.get_running_loop()
    line: asyncio.Future[bytes] = loop.create_future()
    source = sys.stdin.fileno()

    def read() -> None:
        loop.remove_reader(source)
        if not line.done():
            line.set_result(os.read(source, 1024))

    loop.add_reader(source, read)
    deleting = asyncio.ensure_future(second.wait())
    try:
        awaited: list[asyncio.Future[Any]] = [line, deleting, following]
        await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
        if deleting.done():
            return "delete"
        if line.done():
            return "delete" if line.result().strip().lower().startswith(b"d") else "detach"
        return "ended"
    finally:
        loop.remove_reader(source)
        deleting.cancel()
        print(file=sys.stderr)
