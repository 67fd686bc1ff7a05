"""kill -9 at random moments: acknowledged writes exist after the next start."""

import multiprocessing
import random
import time
from pathlib import Path

from onejob.virtual_time import run_virtual
from tests.store import crash_child
from tests.store.support import a_store, is_whole, pod

KILLS = 40
CREATES = 4_000
SEED = 20_261_115


def test_thousands_of_acknowledged_creates_survive_dozens_of_kills(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.store.crash_child"])
    acknowledged: dict[str, int] = {}
    newest = 0
    for life in range(10 * KILLS):
        if life >= KILLS and len(acknowledged) >= CREATES:
            break
        reading, writing = context.Pipe(duplex=False)
        child = context.Process(
            target=crash_child.live, args=(str(tmp_path / "db"), life, writing), daemon=True
        )
        child.start()
        writing.close()
        # Most processes reach their share of creates; some are killed while the store is being
        # opened.
        share = 0 if rng.random() < 0.15 else rng.randrange(60, 220)
        told = b""
        with open(reading.fileno(), "rb", buffering=0, closefd=False) as pipe:
            while told.count(b"\n") < share and (piece := pipe.read(65_536)):
                told += piece
            time.sleep(rng.random() * (0.005 if share else 0.05))
            child.kill()
            while piece := pipe.read(65_536):
                told += piece
        child.join()
        assert child.exitcode == -9, "the child must die by the kill alone"
        reading.close()

        opened, *lines = told.decode().splitlines() or [f"opened {newest}"]
        assert int(opened.removeprefix("opened ")) >= newest, "revisions went back"
        revisions = []
        for line in lines:
            name, revision = line.split()
            acknowledged[name] = int(revision)
            revisions.append(int(revision))
        assert min(revisions, default=newest + 1) > newest, "a revision was used twice"
        newest = max(revisions, default=newest)

    assert life >= KILLS
    assert len(acknowledged) >= CREATES

    async def check() -> None:
        async with a_store(tmp_path / "db") as store:
            assert store.revision >= newest
            for name, revision in acknowledged.items():
                stored = store.get(pod(name))
                assert stored is not None, f"{name} was lost"
                assert stored.revision == revision
            for stored in store.list("pods").items:
                assert is_whole(stored.key.name, stored.value), f"{stored.key} is torn"

    run_virtual(check())
