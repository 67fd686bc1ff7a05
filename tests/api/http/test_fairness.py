"""Fair queuing between users: no user waits behind another's flood."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from onejob.api.access.authentication import fairness_principal
from onejob.api.http.fairness import FairQueue
from onejob.api.yielding import REQUESTER, Worker
from onejob.client.kubeconfig import load_kubeconfig
from onejob.clock import SystemClock
from onejob.wire.errors import TooManyRequests
from tests.api.http.raw_requests import Requests, eventually, with_requests

pytestmark = pytest.mark.virtual_time


async def _seated(
    test: Callable[[FairQueue], Awaitable[None]], seats: int = 2, queue: int = 3
) -> None:
    loop = asyncio.get_running_loop()
    await test(FairQueue(loop.time, seats=seats, queue=queue))


async def test_single_user_is_never_queued() -> None:
    async def test(seats: FairQueue) -> None:
        for _ in range(100):
            await seats.enter("a")
        assert seats.waited == 0
        for _ in range(100):
            seats.leave("a")
        assert len(seats) == 0

    await _seated(test)


async def test_user_is_not_queued_after_others_have_finished() -> None:
    async def test(seats: FairQueue) -> None:
        await seats.enter("b")
        seats.leave("b")
        await asyncio.sleep(1.5)
        for _ in range(100):
            await seats.enter("a")
        assert seats.waited == 0

    await _seated(test)


async def test_a_flood_waits_in_its_own_queue_and_others_pass() -> None:
    async def test(seats: FairQueue) -> None:
        await seats.enter("b")
        seats.leave("b")
        entered: list[int] = []

        async def flood(number: int) -> None:
            await seats.enter("a")
            entered.append(number)

        tasks = [asyncio.ensure_future(flood(number)) for number in range(4)]
        await asyncio.sleep(0.01)
        assert entered == [0, 1]
        assert seats.waiting == 2
        await seats.enter("b")
        seats.leave("b")
        assert entered == [0, 1]
        for _ in range(4):
            seats.leave("a")
            await asyncio.sleep(0.01)
        await asyncio.gather(*tasks)
        assert entered == [0, 1, 2, 3]
        await asyncio.sleep(0.01)
        assert len(seats) == 0

    await _seated(test, queue=10)


async def test_a_request_that_is_given_up_just_as_its_turn_comes_leaves_nothing_behind() -> None:
    async def test(seats: FairQueue) -> None:
        await seats.enter("b")
        await seats.enter("a")
        await asyncio.sleep(0.01)
        await seats.enter("a")
        task = asyncio.create_task(seats.enter("a"))
        await asyncio.sleep(0.01)
        assert seats.waiting == 1
        # The seat is handed over before the task sees its cancellation.
        seats.leave("a")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        seats.leave("a")
        seats.leave("b")
        await asyncio.sleep(0.01)
        assert len(seats) == 0

    await _seated(test)


async def test_full_queue_returns_retry_after() -> None:
    async def test(seats: FairQueue) -> None:
        await seats.enter("b")
        await seats.enter("a")
        await seats.enter("a")
        waiting = [asyncio.ensure_future(seats.enter("a")) for _ in range(3)]
        await asyncio.sleep(0.01)
        with pytest.raises(TooManyRequests) as caught:
            await seats.enter("a")
        assert caught.value.retry_after_seconds == 1
        assert seats.refused == 1
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert seats.waiting == 0

    await _seated(test)


async def test_when_the_others_are_gone_the_queue_opens() -> None:
    async def test(seats: FairQueue) -> None:
        await seats.enter("b")
        seats.leave("b")
        await seats.enter("a")
        await seats.enter("a")
        waiting = [asyncio.ensure_future(seats.enter("a")) for _ in range(3)]
        await asyncio.sleep(2)
        seats.leave("a")
        await asyncio.gather(*waiting)

    await _seated(test)


async def test_cancelled_request_releases_its_seat() -> None:
    async def test(seats: FairQueue) -> None:
        await seats.enter("b")
        await seats.enter("a")
        first = asyncio.ensure_future(seats.enter("a"))
        second = asyncio.ensure_future(seats.enter("a"))
        await asyncio.sleep(0)
        # It gets its seat at the same moment as it gives up.
        seats.leave("a")
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        await second
        seats.leave("a")
        seats.leave("b")
        await asyncio.sleep(0.01)
        assert len(seats) == 0

    await _seated(test, seats=1)


async def _holds(look: Callable[[], bool]) -> bool:
    return look()


def test_a_user_whose_requests_hang_gets_429_while_others_are_served(tmp_path: Path) -> None:
    async def test(requests: Requests) -> None:
        app = requests.server.listener.app
        app.flow_control.seats = FairQueue(SystemClock().monotonic, seats=1, queue=1)
        connection = load_kubeconfig(requests.server.kubeconfig, SystemClock())
        credential = await connection.credentials.current()
        other = {"Impersonate-User": "bob", "Impersonate-Group": "system:masters"}
        assert (await requests("GET", "/api/v1/nodes", headers=other))[0] == 200
        host, _, port = requests.server.url.removeprefix("https://").rpartition(":")
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        _, writer = await asyncio.open_connection(host, int(port), ssl=context)
        head = (
            "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: x\r\n"
            f"Authorization: {credential.authorization}\r\n"
            "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
        )
        writer.write(head.encode())
        await writer.drain()
        await eventually(
            lambda: _holds(lambda: len(app.flow_control.seats) == 1), "the request has a seat"
        )
        assert (await requests("GET", "/api/v1/nodes", headers=other))[0] == 200
        waits = asyncio.ensure_future(requests("GET", "/api/v1/nodes"))
        await eventually(
            lambda: _holds(lambda: app.flow_control.seats.waiting == 1), "another one waits"
        )
        code, status = await requests("GET", "/api/v1/nodes")
        assert code == 429
        assert status["reason"] == "TooManyRequests"
        assert requests.headers["Retry-After"] == "1"
        # Reads by the dashboard on the user's behalf count as well.
        assert (await requests("GET", "/ui/api/queue"))[0] == 429
        assert (await requests("GET", "/ui/api/queue", headers=other))[0] == 200
        assert (await requests("GET", "/healthz"))[0] == 200
        writer.close()
        await eventually(
            lambda: _holds(lambda: len(app.flow_control.seats) == 0), "the seat is free"
        )
        assert (await waits)[0] == 200

    with_requests(tmp_path, test)


class _NoSeats(FairQueue):
    def enter_at_once(self, name: str) -> bool:
        return True

    def leave(self, name: str) -> None:
        pass


async def _passed_by(
    requests: Requests, flood: int, mine: int, *, masks: bool = False
) -> list[int]:
    """Return the number of a flood's requests answered during each request of another user.

    `masks`: each connection of the flood impersonates another service account.
    """
    answered = 0
    over = False

    async def flooding(number: int) -> None:
        nonlocal answered
        mask = {"Impersonate-User": f"system:serviceaccount:default:mask-{number}"}
        headers = {**mask, "Impersonate-Group": "system:masters"} if masks else {}
        while not over:
            await requests("GET", "/api/v1/namespaces/default/configmaps", headers=headers)
            answered += 1

    tasks = [asyncio.ensure_future(flooding(number)) for number in range(flood)]
    other = {"Impersonate-User": "bob", "Impersonate-Group": "system:masters"}
    passed = []
    for _ in range(mine):
        before = answered
        assert (await requests("GET", "/api/v1/namespaces/default", headers=other))[0] == 200
        passed.append(answered - before)
    over = True
    await asyncio.gather(*tasks)
    return sorted(passed)


def test_a_small_request_waits_for_few_of_a_flood(tmp_path: Path) -> None:
    """Counted, not timed: another user waits for a number of requests of the flood."""

    async def test(requests: Requests) -> None:
        app = requests.server.listener.app
        connections = 48
        limited = await _passed_by(requests, connections, 15)
        app.flow_control.seats = _NoSeats(SystemClock().monotonic)
        unlimited = await _passed_by(requests, connections, 15)
        middle = len(limited) // 2
        print("answers of a flood per request of another user:", limited, unlimited)
        assert limited[middle] <= connections / 3, (limited, unlimited)
        assert unlimited[middle] >= connections / 2, (limited, unlimited)

    with_requests(tmp_path, test)


def test_a_flood_under_many_names_is_one_flood(tmp_path: Path) -> None:
    """A user who may edit a namespace may impersonate all its service accounts."""

    async def test(requests: Requests) -> None:
        connections = 48
        passed = await _passed_by(requests, connections, 15, masks=True)
        print("answers of a flood per request of another user:", passed)
        assert passed[len(passed) // 2] <= connections / 3

    with_requests(tmp_path, test)


@pytest.mark.parametrize(
    ("user", "holder"),
    [
        ("alice", "alice"),
        ("system:serviceaccount:a:x", "system:serviceaccount:a"),
        ("system:serviceaccount:b:x", "system:serviceaccount:b"),
        ("system:node:here", "system:node:here"),
    ],
)
def test_service_accounts_of_a_namespace_are_one_holder(user: str, holder: str) -> None:
    assert fairness_principal(user) == holder


def test_large_requests_are_worked_on_in_name_of_their_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    users: set[str] = set()
    run = Worker.run

    async def recorded(worker: Worker, *args: Any, **kwargs: Any) -> Any:
        users.add(REQUESTER.get())
        return await run(worker, *args, **kwargs)

    monkeypatch.setattr(Worker, "run", recorded)

    async def test(requests: Requests) -> None:
        for name in ("bob", "system:serviceaccount:default:a"):
            acting = {"Impersonate-User": name, "Impersonate-Group": "system:masters"}
            large = {"metadata": {"generateName": "m-"}, "data": {"k": "x" * 50_000}}
            path = "/api/v1/namespaces/default/configmaps"
            await requests.ok("POST", path, large, headers=acting)

    with_requests(tmp_path, test)
    assert users == {"bob", "system:serviceaccount:default"}
