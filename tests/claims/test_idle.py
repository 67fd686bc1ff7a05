"""A server without claims does nothing for them."""

import subprocess
import sys
from pathlib import Path

_SERVER = """
import asyncio, sys
from pathlib import Path
from random import Random
from onejob.control_plane import ControlPlane, Dependencies, Settings
from onejob.node.options import NodeOptions
from onejob.store.writer import LoopCommitter
from onejob.virtual_time import run_virtual, virtual_clock
from tests.build import a_job, creation

async def main():
    settings = Settings(Path(sys.argv[1]), NodeOptions(runtime="simulated", name="here"))
    plane = await ControlPlane.start(
        settings, Dependencies(clock=virtual_clock(), rng=Random(1), committer=LoopCommitter(0.001))
    )
    await plane.client.write(creation(a_job(completions=20, parallelism=5)))
    await asyncio.sleep(60)
    await plane.stop()

run_virtual(main())
print(*sorted(
    name for name in sys.modules
    if name.startswith("onejob.") and "claim" in name and ".job" not in name
))
"""


def test_jobs_without_claims_import_nothing_that_handles_claims(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _SERVER, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # The capability itself, and the keys under which volumes of Pods are fetched.
    assert done.stdout.split() == ["onejob.assembly.claims", "onejob.node.setup.claims"]
