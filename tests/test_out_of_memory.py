"""Failed allocations: requests are refused for now, and all parts of the server go on."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import msgspec
import pytest

from onejob.api.access.certificates import ensure_certificates
from onejob.api.http.accepting import Acceptor
from onejob.benchmarks.plane import a_job
from onejob.client.base import Create, Listing, Op, Result, Selection, WatchEvent
from onejob.client.local import LocalClient
from onejob.clock import SystemClock
from onejob.informers.informer import Informer
from onejob.memory_reserve import MemoryReserve
from onejob.objects.meta import JOBS, PODS, Key
from onejob.objects.pod import Pod, read_pod
from onejob.store.base import CommitFailed
from onejob.store.encryption import Cipher
from onejob.virtual_time import virtual_clock
from tests.api.http.scripted import ScriptedService
from tests.api.http.wire import Wire, with_server
from tests.node.support import an_api
from tests.server_support import a_plane
from tests.store.support import a_store, names, pod, write


def test_request_that_runs_out_of_memory_is_refused_for_now(tmp_path: Path) -> None:
    service = ScriptedService()
    service.failure = MemoryError()

    async def test(wire: Wire) -> None:
        reply = await wire.call("GET", "/apis/batch/v1/namespaces/default/jobs/pi")
        assert reply.code == 503
        assert ("retry-after", "5") in reply.headers
        status = msgspec.json.decode(reply.body)
        assert (status["kind"], status["reason"]) == ("Status", "ServiceUnavailable")

    with_server(service, tmp_path, test)


async def test_connections_that_run_out_of_memory_free_their_places(tmp_path: Path) -> None:
    failures, reached = 3, asyncio.Event()

    def new_protocol() -> asyncio.Protocol:
        nonlocal failures
        if failures:
            failures -= 1
            raise MemoryError
        reached.set()
        return asyncio.Protocol()

    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    found = ensure_certificates(tmp_path, ["127.0.0.1"], SystemClock().now())
    acceptor = Acceptor(
        listener, found.server_context(), new_protocol, most=2, make_room=lambda: None
    )
    acceptor.start()
    clients = [await asyncio.open_connection("127.0.0.1", acceptor.port) for _ in range(4)]
    async with asyncio.timeout(60):
        await reached.wait()
    acceptor.stop()
    for _, writer in clients:
        writer.close()


class Exhausted(Cipher):
    """Cipher that runs out of memory."""

    failing = True

    def encrypt(self, key: Key, value: bytes) -> bytes:
        if self.failing:
            raise MemoryError
        return value


@pytest.mark.virtual_time
async def test_commit_that_runs_out_of_memory_is_rolled_back(tmp_path: Path) -> None:
    cipher = Exhausted()
    async with a_store(tmp_path / "db", cipher=cipher) as store:
        with pytest.raises(CommitFailed, match="out of memory"):
            await write(store, pod("a"), "{}")
        cipher.failing = False
        await write(store, pod("b"), "{}")
        assert names(store) == ["b"]


class ShortOfMemory(LocalClient):
    """Client whose next calls run out of memory."""

    lists_fail = 1
    watches_fail = 1

    async def list(self, what: Selection, *, limit: int = 0, token: str = "") -> Listing:
        if self.lists_fail:
            self.lists_fail -= 1
            raise MemoryError
        return await super().list(what, limit=limit, token=token)

    async def watch(
        self, what: Selection, *, after: int
    ) -> AsyncGenerator[Sequence[WatchEvent], None]:
        if self.watches_fail:
            self.watches_fail -= 1
            raise MemoryError
        async for batch in super().watch(what, after=after):
            yield batch


@pytest.mark.virtual_time
async def test_informer_lists_and_watches_again_after_running_out_of_memory(tmp_path: Path) -> None:
    async with an_api(tmp_path, virtual_clock(), in_this_thread=True) as api:
        client = ShortOfMemory(api._service)
        informer: Informer[Pod] = Informer(
            client, Selection(PODS), read_pod, lambda found: found.key
        )
        following = asyncio.create_task(informer.run())
        await informer.synced()
        spec = {"containers": [{"name": "c", "image": "i"}]}
        document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec}
        await api.write(Create(PODS, "default", msgspec.json.encode(document)))
        await asyncio.sleep(60)
        assert [found.metadata.name for found in informer.cache] == ["a"]
        assert not following.done()
        following.cancel()


@pytest.mark.virtual_time
async def test_node_writes_statuses_again_after_running_out_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_many = LocalClient.write_many
    failures = 3

    async def failing(self: LocalClient, ops: Sequence[Op]) -> Sequence[Result]:
        nonlocal failures
        if failures:
            failures -= 1
            raise MemoryError
        return await write_many(self, ops)

    async with a_plane(tmp_path) as plane:
        monkeypatch.setattr(LocalClient, "write_many", failing)
        await plane.client.write(a_job("j", completions=1, parallelism=1))
        await asyncio.sleep(60)
        assert not plane.failed.done()
        job = msgspec.json.decode(await plane.client.get(Key(JOBS, "default", "j")))
        assert job["status"]["succeeded"] == 1
    assert failures == 0


class Callback:
    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"<Handle {self._name}>"


@pytest.mark.parametrize(
    ("name", "error", "fails"),
    [
        ("UVTransport._call_connection_lost", MemoryError(), False),
        ("UVTransport._call_connection_lost", ValueError(), True),
        ("CommitQueue._on_commit", MemoryError(), True),
    ],
)
@pytest.mark.virtual_time
async def test_connection_that_runs_out_of_memory_as_it_ends_does_not_fail_the_server(
    tmp_path: Path, name: str, error: Exception, fails: bool
) -> None:
    async with a_plane(tmp_path) as plane:
        context = {"message": "failed", "handle": Callback(name), "exception": error}
        asyncio.get_running_loop().call_exception_handler(context)
        assert plane.failed.done() is fails


def test_reserve_is_held_again_after_it_was_spent() -> None:
    def mapped() -> int:
        return int(Path("/proc/self/statm").read_text().split()[0])

    before = mapped()
    reserve = MemoryReserve()
    reserve.restore()
    assert reserve._held is None, "not wanted yet"
    reserve.hold()
    assert mapped() > before
    reserve.spend()
    assert reserve._held is None
    reserve.restore()
    assert reserve._held is not None
    reserve.spend()
