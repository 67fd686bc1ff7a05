"""Server without mirrored Jobs: the mirror costs it only one waiting task."""

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import asyncio, sys
from pathlib import Path
from onejob.https_server import HttpsServer
from onejob.node.options import NodeOptions
from onejob.server import Settings
from onejob.client.base import Create
from onejob.objects.meta import Key
import msgspec

async def main(folder):
    server = await HttpsServer.start(
        Settings(folder / "data", NodeOptions(runtime="simulated", pods_end_with_server=True)),
        host="127.0.0.1", port=0, kubeconfig=folder / "kubeconfig",
    )
    client = server.plane.client
    for name, more in (("other", {"managedBy": "example.org/other"}), ("plain", {})):
        pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
               "spec": {"template": {"spec": pod}, **more}}
        await client.write(Create("jobs.batch", "default", msgspec.json.encode(job)))
    while b'"Complete"' not in await client.get(Key("jobs.batch", "default", "plain")):
        await asyncio.sleep(0.01)
    loaded = [name for name in sys.modules if name.startswith("onejob.controllers.mirror.")]
    print(sorted(loaded), "aiohttp" in sys.modules)
    await server.stop()

asyncio.run(main(Path(sys.argv[1])))
"""


def test_nothing_of_it_is_loaded_before_it_is_needed(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    expected = ["onejob.controllers.mirror.on_demand", "onejob.controllers.mirror.pod_sources"]
    assert done.stdout == f"{expected} False\n", done.stderr
