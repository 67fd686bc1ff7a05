"""Server for tests that kill it: `python -m tests.node.doomed_server FOLDER [owner]`.

Runs the API and a process node on FOLDER and prints `ready`.
"""

import asyncio
import json
import sys
from pathlib import Path

from tests.node.support import a_node, an_api, process_runtime


async def serve() -> None:
    path = Path(sys.argv[1])
    runtime = process_runtime(path, working_dir=path, pods_end_with_server="owner" in sys.argv)
    async with an_api(path) as client, a_node(client, runtime) as node:
        await node.create(json.loads(sys.stdin.readline()))
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve())
