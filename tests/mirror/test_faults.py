"""Loss and return of the remote side."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest

from onejob.controllers.mirror import controller, remote
from onejob.objects.meta import JOBS, Key
from onejob.planning.mirror import names
from tests.mirror.fault_proxy import FaultProxy
from tests.mirror.pairs import (
    Document,
    Pair,
    a_pair,
    add_target,
    condition,
    is_complete,
    trouble,
    until,
    until_gone,
)

WAITS = "echo run >> LEDGER; while [ ! -e GATE ]; do sleep 0.05; done"


@asynccontextmanager
async def behind_a_proxy(pair: Pair) -> AsyncIterator[FaultProxy]:
    """Make the remote side the target `far`, through a proxy."""
    proxy = FaultProxy(lambda: urlsplit(pair.there.url).port or 0)
    port = await proxy.start()
    config = msgspec.json.decode(pair.there.kubeconfig.read_bytes())
    config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{port}"
    await add_target(pair.local, "far", msgspec.json.encode(config))
    try:
        yield proxy
    finally:
        await proxy.stop()


async def test_a_partition_is_reported_and_survived(tmp_path: Path) -> None:
    ledger, gate = tmp_path / "ledger", tmp_path / "gate"
    command = WAITS.replace("LEDGER", str(ledger)).replace("GATE", str(gate))
    async with a_pair(tmp_path, "process") as pair, behind_a_proxy(pair) as proxy:
        await pair.create(command=command, target="far")
        await pair.until(lambda job: job.get("status", {}).get("ready") == 1)
        proxy.set("refusing")
        # A pending change makes it notice at once.
        await pair.patch({"spec": {"backoffLimit": 3}})
        job = await pair.until(trouble("Unreachable"))
        assert "attempt" in condition(job)["message"]
        assert "retrying at" in condition(job)["message"]
        assert job["status"]["active"] == 1, "what was known stays"
        gate.touch()
        await until(pair.remote, Key(JOBS, "default", "x"), is_complete)
        assert not is_complete(await pair.job())
        proxy.set("open")
        job = await pair.until(is_complete)
        assert condition(job)["status"] == "True"
        assert ledger.read_text() == "run\n"


async def test_a_watch_that_died_without_a_word_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "RESYNC_SECONDS", 0.3)
    monkeypatch.setattr(remote, "DEAD_WATCH_SECONDS", 0.5)
    monkeypatch.setattr(remote, "_REQUEST_SECONDS", 0.5)
    gate = tmp_path / "gate"
    command = WAITS.replace("LEDGER", "/dev/null").replace("GATE", str(gate))
    async with a_pair(tmp_path, "process") as pair, behind_a_proxy(pair) as proxy:
        await pair.create(command=command, target="far")
        await pair.until(lambda job: job.get("status", {}).get("ready") == 1)
        proxy.forget()
        gate.touch()
        await pair.until(is_complete)


async def test_no_second_copy_starts_before_the_stated_time_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "RESYNC_SECONDS", 0.2)
    ledger, gate = tmp_path / "ledger", tmp_path / "gate"
    command = WAITS.replace("LEDGER", str(ledger)).replace("GATE", str(gate))
    async with a_pair(tmp_path, "process") as pair, behind_a_proxy(pair) as proxy:
        await pair.create(command=command, target="far")
        await pair.until(lambda job: job.get("status", {}).get("ready") == 1)
        proxy.set("refusing")
        elsewhere = {names.TARGET: "there", names.NAMESPACE: "kube-public"}
        await pair.patch({"metadata": {"annotations": elsewhere}})
        job = await pair.until(trouble("Unreachable"))
        assert "may still be running, so no other copy is started" in condition(job)["message"]
        assert ledger.read_text() == "run\n"
        await pair.patch({"metadata": {"annotations": {names.LOST_AFTER: "300ms"}}})
        await pair.until(second_copy_is_on_record)
        key = Key(JOBS, "kube-public", "x")
        await until(pair.remote, key, lambda copy: copy["spec"]["suspend"] is False)
        gate.touch()
        await pair.until(is_complete)
        assert ledger.read_text() == "run\nrun\n", "as was stated, the first one went on"


def second_copy_is_on_record(job: Document) -> bool:
    record = job["metadata"]["annotations"][names.RECORD]
    return '"attempt":2' in record and '"uid"' in record


async def test_a_job_that_is_deleted_while_the_remote_side_is_lost(tmp_path: Path) -> None:
    async with a_pair(tmp_path, "process") as pair, behind_a_proxy(pair) as proxy:
        await pair.create(command="sleep 600", target="far")
        await pair.until(lambda job: job.get("status", {}).get("ready") == 1)
        proxy.set("refusing")
        await pair.delete()
        await pair.until(trouble("Unreachable"))
        assert (await pair.copy())["status"]["active"] == 1
        proxy.set("open")
        await until_gone(pair.local, Key(JOBS, "default", "x"))
        assert not await pair.pods(pair.remote)
        assert not await pair.pods(pair.local)
