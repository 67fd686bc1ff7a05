"""Program run by a test where PID namespaces are forbidden: prints the node's messages."""

import asyncio
import json
import sys
from pathlib import Path

import msgspec

from onejob.node.runtime import RuntimeUnavailable
from onejob.objects.meta import NODES, Key
from tests.node.support import NODE, a_process_node, process_runtime, shell


async def _fetch_nothing(key: Key) -> bytes:
    raise AssertionError(f"{key} is not needed")


async def main(path: Path) -> None:
    said: dict[str, object] = {}
    refused = process_runtime(path / "on", pid_namespace="on")
    try:
        await refused.start(lambda _: None, _fetch_nothing)
    except RuntimeUnavailable as error:
        said["on"] = str(error)
    await refused.close(end_pods=True)
    (path / "auto").mkdir()
    async with a_process_node(path / "auto", pid_namespace="auto") as node:
        said["phase"] = (await node.run(shell("true")))["status"]["phase"]
        document = msgspec.json.decode(await node.client.get(Key(NODES, "", NODE)))
        for condition in document["status"]["conditions"]:
            if condition["type"] == "SharedProcesses":
                said["auto"] = condition
    print(json.dumps(said))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
