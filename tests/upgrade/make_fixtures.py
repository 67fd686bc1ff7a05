"""Generator of a small database and journal of the present versions, if missing."""

import asyncio
import gzip
import lzma
import tempfile
from pathlib import Path

from onejob.client.base import Create
from onejob.node.supervisor.journal import Journal
from onejob.node.supervisor.versions import JOURNAL
from onejob.objects.meta import JOBS
from onejob.store.migrations import STEPS
from onejob.virtual_time import run_virtual
from tests.upgrade.support import (
    CLAIMS,
    ENDED,
    FINISHED,
    FIXTURES,
    IDENTITY,
    SUSPENDED,
    a_plane,
    database,
    job,
    journal,
)


def main() -> None:
    FIXTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        if not database(len(STEPS)).exists():
            database(len(STEPS)).write_bytes(lzma.compress(_database(Path(folder) / "data")))
        if not journal(JOURNAL).exists():
            records = _journal(Path(folder) / "claims").rstrip(b"\0")
            journal(JOURNAL).write_bytes(gzip.compress(records))
    for path in sorted(FIXTURES.iterdir()):
        print(f"{path.stat().st_size:8}  {path.name}")


def _database(folder: Path) -> bytes:
    async def live() -> None:
        plane = await a_plane(folder)
        for name, suspend in ((FINISHED, False), (SUSPENDED, True)):
            await plane.client.write(Create(JOBS, "default", job(name, suspend=suspend)))
        await asyncio.sleep(60)
        await plane.stop()

    run_virtual(live())
    return (folder / "onejob.db").read_bytes()


def _journal(path: Path) -> bytes:
    written = Journal(str(path), IDENTITY)
    attempts = {name: written.claim(claim, 7, "/work") for name, claim in CLAIMS.items()}
    for name in ("ended", "running"):
        attempts[name].pid, attempts[name].started_at = 4242, 1_700_000_000.25
        written.began(attempts[name])
    written.end(attempts["ended"], ENDED)
    assert written.flush()
    return path.read_bytes()


if __name__ == "__main__":
    main()
