"""Store on a full btrfs: `python -m tests.store.full_btrfs IMAGE FOLDER`.

In a process of its own, because the bug would kill the process, and with a private mount. Exits
with 0 if all went well, with 77 if btrfs cannot be mounted here.
"""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from onejob.clock import SystemClock
from onejob.node.supervisor import linux
from onejob.store.base import CommitFailed
from onejob.store.log import LogStore
from onejob.store.writer import ThreadCommitter
from tests.store.support import pod, put

_IMAGE_BYTES = 130 << 20
CANNOT_MOUNT = 77


def main(image: Path, folder: Path) -> int:
    with image.open("wb") as file:
        file.truncate(_IMAGE_BYTES)
    linux.unshare(linux.CLONE_NEWNS)
    linux.mount("none", "/", linux.MS_REC | linux.MS_PRIVATE)
    for command in (
        ["mkfs.btrfs", "-q", str(image)],
        ["mount", "-o", "loop", str(image), str(folder)],
    ):
        if subprocess.run(command, capture_output=True, check=False).returncode:
            return CANNOT_MOUNT
    asyncio.run(_use(folder))
    # The mount is busy while the files are open: it ends with this process.
    return 0


async def _use(folder: Path) -> None:
    path = folder / "db"
    store = await _open(path)
    revision = 0
    for number in range(50):
        revision = put(store, pod(f"{number}"), "x" * 2_000)
        await store.durable(revision)
    _fill(folder / "others")
    failed = 0
    for number in range(50):
        # Mapped pages are written to disk, so that their next change would be copied.
        os.sync()
        try:
            await store.durable(put(store, pod(f"{number}"), "y" * 2_000))
        except CommitFailed:
            failed += 1
    assert failed, "the disk was not full"
    await store.close()
    (folder / "others").unlink()
    again = await _open(path)
    assert again.revision >= revision
    await again.close()


async def _open(path: Path) -> LogStore:
    return await LogStore.open(path, clock=SystemClock(), committer=ThreadCommitter())


def _fill(path: Path) -> None:
    """Fill the file system to the last block."""
    with path.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 16, 1 << 12, 1 << 9):
            try:
                while True:
                    file.write(os.urandom(size))
            except OSError:
                continue


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
