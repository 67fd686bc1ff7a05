"""Server without mirrored Jobs: the mirror costs it only one waiting task."""

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import asyncio, sys, threading
from pathlib import Path
from onejob.server import HttpsServer
from onejob.node.options import NodeOptions
from onejob.control_plane import Settings
from onejob.client.base import Create, Selection
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
    imported_by = []
    sys.addaudithook(
        lambda event, args: event == "import" and args[0] == "onejob.controllers.mirror.controller"
        and imported_by.append(threading.current_thread() is threading.main_thread())
    )
    loaded = [name for name in sys.modules if name.startswith("onejob.controllers.mirror.")]
    print(sorted(loaded), "aiohttp" in sys.modules)
    job["metadata"]["name"] = "mirrored"
    job["spec"]["managedBy"] = "onejob.dev/mirror"
    await client.write(Create("jobs.batch", "default", msgspec.json.encode(job)))
    while not any(b'"mirrored"' in e for e in (await client.list(Selection("events"))).documents):
        await asyncio.sleep(0.01)
    print("imported by the main thread:", imported_by)
    await server.stop()

asyncio.run(main(Path(sys.argv[1])))
"""


def test_mirror_is_imported_in_a_thread_when_first_needed(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    expected = ["onejob.controllers.mirror.on_demand", "onejob.controllers.mirror.pod_sources"]
    assert done.stdout.splitlines() == [
        f"{expected} False",
        "imported by the main thread: [False]",
    ], done.stderr
