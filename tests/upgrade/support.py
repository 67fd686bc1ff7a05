"""Fixture files of versions, and their contents."""

import gzip
import lzma
from pathlib import Path
from typing import Any

import msgspec

from onejob.control_plane import ControlPlane, Dependencies, Settings
from onejob.node.options import NodeOptions
from onejob.node.supervisor.journal import Claim, Identity, Outcome
from onejob.objects.meta import JOBS, Key
from onejob.store.writer import LoopCommitter
from onejob.virtual_time import virtual_clock
from tests.build import a_job

FIXTURES = Path(__file__).parent / "fixtures"
FINISHED, SUSPENDED = "finished", "suspended"

#: Identity and claims in the journals.
IDENTITY = Identity("a-boot", 1, "1:1")
CLAIMS = {
    "ended": Claim("uid-1", "main", 0),
    "restarted": Claim("uid-1", "main", 1),
    "running": Claim("uid-2", "main", 0),
    "claimed": Claim("uid-3", "main", 0),
}
ENDED = Outcome("exited", 1_700_000_005.5, 3, 0, "", "three", alone=True)


def database(version: int) -> Path:
    return FIXTURES / f"schema-{version}.db.xz"


def journal(version: int) -> Path:
    return FIXTURES / f"journal-{version}.gz"


def unpack(fixture: Path, target: Path) -> None:
    decompress = lzma.decompress if fixture.suffix == ".xz" else gzip.decompress
    target.write_bytes(decompress(fixture.read_bytes()))


async def a_plane(folder: Path) -> ControlPlane:
    """Start a control plane in virtual time, with simulated Pods."""
    node = NodeOptions("simulated", "node", {"cpu": "4", "pods": "10"})
    world = Dependencies(clock=virtual_clock(), committer=LoopCommitter())
    return await ControlPlane.start(Settings(folder, node), world)


def job(name: str, *, suspend: bool) -> bytes:
    return msgspec.json.encode(a_job(name, completions=2, suspend=suspend))


def key(name: str) -> Key:
    return Key(JOBS, "default", name)


async def status(plane: ControlPlane, name: str) -> dict[str, Any]:
    status: dict[str, Any] = msgspec.json.decode(await plane.client.get(key(name)))["status"]
    return status
