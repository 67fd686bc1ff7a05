"""Lack of threads: work is delayed, but requests are not refused and the server does not exit."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from onejob.controllers.notify.config import Email
from onejob.controllers.notify.delivery import NotDelivered
from onejob.controllers.notify.mail import MailChannel
from onejob.objects.meta import Key
from onejob.planning.notify.messages import Message
from onejob.store.base import CannotOpen
from onejob.store.log import LogStore
from onejob.testing import OnejobServer
from onejob.virtual_time import NOON, virtual_clock
from onejob.worker_threads import WorkerThreads, start_daemon
from tests.store.support import a_store, write

pytestmark = pytest.mark.virtual_time


@contextmanager
def no_more_threads() -> Iterator[None]:
    """Refuse each further thread, as the kernel does at pids.max."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        yield


def test_pool_runs_work_at_once_without_any_thread() -> None:
    ran: list[str] = []
    with WorkerThreads(2) as pool:
        with no_more_threads():
            done = pool.submit(ran.append, "first")
            assert done.done()
            assert ran == ["first"]
            failed = pool.submit(int, "no number")
            assert isinstance(failed.exception(0), ValueError)
        # Later threads take it from the queue.
        pool.submit(ran.append, "second").result(60)
    assert ran == ["first", "second"]


def test_pool_queues_work_for_its_threads_when_no_more_start() -> None:
    with WorkerThreads(4) as pool:
        going_on = threading.Event()
        first = pool.submit(going_on.wait, 60)
        with no_more_threads():
            second = pool.submit(threading.get_ident)
            assert not second.done()
            going_on.set()
            assert second.result(60) != threading.get_ident()
        assert first.result(60)


def test_pool_refuses_work_after_shutdown() -> None:
    pool = WorkerThreads(1)
    pool.shutdown()
    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.submit(int)


def test_start_daemon_raises_os_error_without_threads() -> None:
    with no_more_threads(), pytest.raises(BlockingIOError, match="cannot start a thread"):
        start_daemon(lambda: None, "x")


def test_server_answers_large_requests_without_further_threads(tmp_path: Path) -> None:
    server = OnejobServer(tmp_path, "simulated")
    try:
        namespace = server.new_namespace()
        with no_more_threads():
            for number in range(3):
                namespace.create(
                    {
                        "apiVersion": "v1",
                        "kind": "ConfigMap",
                        "metadata": {"name": f"large-{number}"},
                        "data": {"text": "x" * 900_000},
                    }
                )
        assert len(namespace.list("configmaps")) >= 3
        namespace.close()
    finally:
        server.stop()


async def test_store_opens_with_a_damaged_document_without_threads(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The page check, which has a thread of its own, is skipped."""
    key = Key("configmaps", "default", "a")
    async with a_store(tmp_path / "db") as store:
        await write(store, key, "x")
    connection = apsw.Connection(str(tmp_path / "db"))
    connection.execute("UPDATE log SET value = x'7b'")
    connection.close()
    with no_more_threads():
        async with a_store(tmp_path / "db") as store:
            assert set(store.damaged) == {key}
    assert "cannot check the pages" in caplog.text


async def test_store_refuses_to_open_in_one_line_without_a_thread_for_commits(
    tmp_path: Path,
) -> None:
    with no_more_threads(), pytest.raises(CannotOpen, match="cannot start a thread") as why:
        await LogStore.open(tmp_path / "db", clock=virtual_clock())
    assert "\n" not in str(why.value)
    # No lock was left behind.
    async with a_store(tmp_path / "db"):
        pass


async def test_mail_is_not_delivered_without_a_thread() -> None:
    """The mail is sent again later, as after any other failure."""
    channel = MailChannel(Email("x", sender="a@example.com", to=("b@example.com",), tls="none"))
    with no_more_threads(), pytest.raises(NotDelivered, match="cannot start a thread"):
        await channel.send(
            Message("m1", "failed", "ops", NOON, "text", namespace="default", name="pi")
        )


#: Stacks are larger than the rest of the address space, so that the kernel refuses threads and
#: nothing else.
_LIMITED = """
import asyncio, resource, socket, sys, threading
import uvloop
from onejob.worker_threads import prepare_threads

GIB = 1 << 30

def limit():
    threading.stack_size(GIB)
    _, most = resource.getrlimit(resource.RLIMIT_STACK)
    resource.setrlimit(resource.RLIMIT_STACK, (GIB if most < 0 else most, most))
    pages = int(open("/proc/self/statm").read().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + GIB // 2,) * 2)
    try:
        threading.Thread(target=int).start()
    except RuntimeError:
        return
    sys.exit("threads can still be started")

async def work_at_the_limit():
    await prepare_threads()
    limit()
    print(await asyncio.to_thread(lambda: "worked"))
    found = await asyncio.get_running_loop().getaddrinfo("localhost", 80)
    print("resolved" if found else "nothing")

factory = uvloop.new_event_loop if sys.argv[1] == "uvloop" else asyncio.new_event_loop
runner = asyncio.Runner(loop_factory=factory)
runner.run(work_at_the_limit())
"""


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_prepared_loop_works_when_the_kernel_refuses_threads(loop: str) -> None:
    """Regression: libuv aborted when a name was first resolved."""
    done = subprocess.run(
        [sys.executable, "-c", _LIMITED, loop],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.splitlines() == ["worked", "resolved"], done.stderr
