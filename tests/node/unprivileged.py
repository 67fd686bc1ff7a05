"""Program run by a test as an unprivileged user: prints the output of a Pod with volumes."""

import asyncio
import sys
from pathlib import Path

from tests.node.support import a_process_node, shell, with_spec

SCRIPT = "id -u; echo written > /data/f; cat /data/f; touch /ro/f 2> /dev/null || echo read-only"
MOUNTS = [
    {"name": "v", "mountPath": "/data"},
    {"name": "v", "mountPath": "/ro", "readOnly": True},
]


async def run_pod() -> None:
    async with a_process_node(Path(sys.argv[1])) as node:
        pod = shell(SCRIPT, volumeMounts=MOUNTS, securityContext={"runAsUser": 7})
        await node.run(with_spec(pod, volumes=[{"name": "v", "emptyDir": {}}]))
        print(await node.output("p"), end="")


if __name__ == "__main__":
    asyncio.run(run_pod())
