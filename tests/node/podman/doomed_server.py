"""Server for tests that kill it, with a podman node.

`python -m tests.node.podman.doomed_server FOLDER ENGINE [owner]` runs the API and a podman node on
FOLDER, creates the Pod that it reads and prints `ready`.
"""

import asyncio
import json
import shlex
import sys
from pathlib import Path

from tests.node.podman.support import a_podman_node


async def serve() -> None:
    path, engine = Path(sys.argv[1]), tuple(shlex.split(sys.argv[2]))
    async with a_podman_node(path, engine=engine, pods_end_with_server="owner" in sys.argv) as node:
        await node.create(json.loads(sys.stdin.readline()))
        print("ready", flush=True)
        await asyncio.Event().wait()


asyncio.run(serve())
