"""Servers killed while they provision or delete a volume: the next one finishes the work."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from onejob.objects.claims import CLAIMS, VOLUMES
from onejob.objects.meta import Key
from tests.claims.support import a_world


def kill_at(folder: Path, when: str, what: str) -> None:
    command = [sys.executable, "-m", "tests.claims.doomed_server", str(folder), when, what]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("what", ["Create", "Patch"])
async def test_a_claim_gets_one_volume_whenever_the_server_is_killed(
    tmp_path: Path, when: str, what: str
) -> None:
    kill_at(tmp_path, when, what)
    async with a_world(tmp_path) as world:
        claim = await world.bound()
        (volume,) = await world.names(VOLUMES)
        assert claim["spec"]["volumeName"] == volume
        assert [path.name for path in world.volumes.iterdir()] == [volume]


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_released_volume_is_deleted_whenever_the_server_is_killed(
    tmp_path: Path, when: str
) -> None:
    kill_at(tmp_path, when, "Delete")
    async with a_world(tmp_path) as world:
        await world.until_gone(CLAIMS, "data")
        for name in await world.names(VOLUMES):
            await world.until_gone(VOLUMES, name)
        assert list(world.volumes.iterdir()) == []


async def test_the_folder_of_a_claim_that_was_deleted_meanwhile_is_removed_if_empty(
    tmp_path: Path,
) -> None:
    kill_at(tmp_path, "before", "Create")
    folders = tmp_path / "volumes"
    (orphan,) = folders.iterdir()
    (folders / "of-a-later-backup").mkdir()
    (folders / "of-a-later-backup" / "data").write_text("kept")
    async with a_world(tmp_path, controllers=frozenset()) as world:
        await world.patch(CLAIMS, "data", {"metadata": {"finalizers": None}})
        await world.delete(CLAIMS, "data")
        assert world.plane.store.get(Key(CLAIMS, "default", "data")) is None
    async with a_world(tmp_path) as world:
        await world.claim("other")
        await world.bound("other")
        assert not orphan.exists()
        assert (folders / "of-a-later-backup" / "data").read_text() == "kept"
