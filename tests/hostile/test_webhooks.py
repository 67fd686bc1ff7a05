"""Hostile webhooks: each fails with a documented Status, within limits, and delays no other."""

import asyncio
import gzip
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from onejob.wire.errors import InternalError
from tests.api.service_support import CONFIGMAP, PERSON, a_map, create
from tests.webhooks.support import (
    Hook,
    a_calling_service,
    a_raw_hook,
    a_webhook,
    a_writing_hook,
    configure,
    http_response,
    patch,
    review_response,
)

_FAILED = 'Internal error occurred: failed calling webhook "w.test.dev": '


async def _garbage(path: str, body: bytes) -> bytes:
    return http_response(b"\xff{[")


async def _no_http(path: str, body: bytes) -> bytes:
    return b"garbage\r\n\r\n"


async def _huge(path: str, body: bytes) -> bytes:
    return http_response(b" " * 10_000_000)


async def _redirect(path: str, body: bytes) -> bytes:
    return http_response(b"", "302 Found", "Location: https://127.0.0.1:1/\r\n")


async def _other_request(path: str, body: bytes) -> bytes:
    return http_response(review_response({"request": {"uid": "other"}}, {}))


async def _another_kind(path: str, body: bytes) -> bytes:
    return http_response(b'{"apiVersion":"v1","kind":"Pod"}')


async def _no_response(path: str, body: bytes) -> bytes:
    return http_response(b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}')


async def _bad_patch_type(path: str, body: bytes) -> bytes:
    response = {**patch({"op": "remove", "path": "/data"}), "patchType": "Merge"}
    return http_response(review_response(msgspec.json.decode(body), response))


async def _wrong_kind(path: str, body: bytes) -> bytes:
    wrong = patch({"op": "replace", "path": "/kind", "value": "Secret"})
    return http_response(review_response(msgspec.json.decode(body), wrong))


async def _missing_path(path: str, body: bytes) -> bytes:
    wrong = patch({"op": "remove", "path": "/spec/absent"})
    return http_response(review_response(msgspec.json.decode(body), wrong))


async def _wrong_type(path: str, body: bytes) -> bytes:
    wrong = patch({"op": "replace", "path": "/data", "value": [1]})
    return http_response(review_response(msgspec.json.decode(body), wrong))


@pytest.mark.parametrize(
    ("respond", "text"),
    [
        (_garbage, _FAILED + "failed to call webhook: cannot decode the response: "),
        (_no_http, _FAILED + "failed to call webhook: Post "),
        (_huge, "the response has more than 3145728 bytes"),
        (_redirect, "the server responded with the status code 302; redirects are not followed"),
        (_other_request, 'received invalid webhook response: expected response.uid="'),
        (_another_kind, "expected a response of admission.k8s.io/v1, Kind=AdmissionReview"),
        (_no_response, "webhook response was absent"),
        (_bad_patch_type, _FAILED + 'unsupported patch type "Merge"'),
        (_wrong_kind, "the patch changes apiVersion or kind of the object"),
        (_missing_path, "remove operation does not apply"),
        (_wrong_type, 'applying the patch of admission webhook "w.test.dev"'),
    ],
)
async def test_a_faulty_response_fails_the_request(
    tmp_path: Path, respond: Callable[[str, bytes], Awaitable[bytes]], text: str
) -> None:
    async with a_raw_hook(tmp_path, respond) as hook, a_calling_service(tmp_path) as service:
        await configure(service, a_webhook(hook), mutating=True)
        with pytest.raises(InternalError) as failure:
            await create(service, a_map("m"), CONFIGMAP)
        assert text in failure.value.message
        assert failure.value.code == 500


async def test_a_failure_may_be_ignored(tmp_path: Path) -> None:
    async with a_raw_hook(tmp_path, _garbage) as hook, a_calling_service(tmp_path) as service:
        await configure(service, a_webhook(hook, failurePolicy="Ignore"))
        await create(service, a_map("m"), CONFIGMAP)


async def test_a_webhook_that_is_down_fails_the_request(tmp_path: Path) -> None:
    async with a_raw_hook(tmp_path, _garbage) as hook, a_calling_service(tmp_path) as service:
        down = Hook(1, hook.ca_bundle)
        await configure(service, a_webhook(down))
        with pytest.raises(InternalError) as failure:
            await create(service, a_map("m"), CONFIGMAP)
        text = (
            _FAILED + 'failed to call webhook: Post "https://127.0.0.1:1/?timeout=10s": '
            "dial tcp 127.0.0.1:1: connect: connection refused"
        )
        assert failure.value.message == text


async def test_a_webhook_with_an_untrusted_certificate_is_not_called(tmp_path: Path) -> None:
    async with a_raw_hook(tmp_path, _garbage) as hook, a_calling_service(tmp_path) as service:
        await configure(service, a_webhook(hook, clientConfig={"url": hook.client()["url"]}))
        with pytest.raises(InternalError, match="tls: failed to verify certificate"):
            await create(service, a_map("m"), CONFIGMAP)
        assert not hook.reviews


async def test_a_slow_webhook_fails_at_its_time_limit_and_delays_no_other_request(
    tmp_path: Path,
) -> None:
    called, released = asyncio.Event(), asyncio.Event()

    async def slow(path: str, body: bytes) -> bytes:
        called.set()
        await released.wait()
        return b""

    async with a_raw_hook(tmp_path, slow) as hook, a_calling_service(tmp_path) as service:
        selector = {"matchLabels": {"slow": "yes"}}
        await configure(service, a_webhook(hook, timeoutSeconds=1, objectSelector=selector))
        waiting = asyncio.create_task(
            service.create(CONFIGMAP, "default", a_map("m", labels={"slow": "yes"}), PERSON)
        )
        await called.wait()
        await create(service, a_map("other"), CONFIGMAP)
        assert not waiting.done()
        with pytest.raises(InternalError, match="context deadline exceeded"):
            await waiting
        released.set()


_MEGABYTE = 1024 * 1024


class _Endless:
    """A response that never ends: `head`, and then the same piece again and again."""

    def __init__(self, head: bytes, piece: bytes, *, paced: bool = False) -> None:
        self._head = head
        self._piece = piece
        self._paced = paced
        self.written = 0
        self.stopped = asyncio.Event()

    async def write(self, path: str, body: bytes, writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(self._head)
            while not writer.transport.is_closing():
                writer.write(self._piece)
                self.written += len(self._piece)
                await writer.drain()
                await asyncio.sleep(0.05 if self._paced else 0)
        finally:
            self.stopped.set()


_CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
_ZIPPED = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n"


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


@pytest.mark.parametrize(
    ("head", "piece", "text", "most"),
    [
        (_CHUNKED, _chunk(b" " * 65_536), "has more than 3145728 bytes", 16 * _MEGABYTE),
        (
            b"HTTP/1.1 200 OK\r\n",
            b"X-Y: " + b"z" * 1000 + b"\r\n",
            "headers are too long",
            _MEGABYTE,
        ),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100, "headers are too long", _MEGABYTE),
        (_ZIPPED, _chunk(gzip.compress(b" " * _MEGABYTE)), "has more than 3145728", _MEGABYTE),
    ],
)
async def test_an_endless_response_is_cut_off(
    tmp_path: Path, head: bytes, piece: bytes, text: str, most: int
) -> None:
    endless = _Endless(head, piece)
    async with (
        a_writing_hook(tmp_path, endless.write) as hook,
        a_calling_service(tmp_path) as service,
    ):
        await configure(service, a_webhook(hook), mutating=True)
        with pytest.raises(InternalError) as failure:
            await create(service, a_map("m"), CONFIGMAP)
        assert text in failure.value.message
        await endless.stopped.wait()
        assert endless.written < most


async def test_a_response_that_trickles_ends_at_the_time_limit(tmp_path: Path) -> None:
    """Each piece comes long before any time-out; the limit is on the whole call."""
    endless = _Endless(_CHUNKED, _chunk(b" "), paced=True)
    async with (
        a_writing_hook(tmp_path, endless.write) as hook,
        a_calling_service(tmp_path) as service,
    ):
        await configure(service, a_webhook(hook, timeoutSeconds=1))
        with pytest.raises(InternalError, match="context deadline exceeded"):
            await create(service, a_map("m"), CONFIGMAP)
        await endless.stopped.wait()


async def test_a_webhook_cannot_postpone_its_answer_for_ever(tmp_path: Path) -> None:
    async def later(path: str, body: bytes) -> bytes:
        return http_response(b"", "503 Service Unavailable", "Retry-After: 3600\r\n")

    async with a_raw_hook(tmp_path, later) as hook, a_calling_service(tmp_path) as service:
        await configure(service, a_webhook(hook, timeoutSeconds=1))
        with pytest.raises(InternalError, match="context deadline exceeded"):
            await create(service, a_map("m"), CONFIGMAP)
        assert len(hook.paths) == 1


async def test_a_webhook_that_asks_again_at_once_is_called_a_few_times(tmp_path: Path) -> None:
    async def at_once(path: str, body: bytes) -> bytes:
        return http_response(b"busy", "429 Too Many Requests", "Retry-After: 0\r\n")

    async with a_raw_hook(tmp_path, at_once) as hook, a_calling_service(tmp_path) as service:
        await configure(service, a_webhook(hook, timeoutSeconds=30))
        with pytest.raises(InternalError, match="has received too many requests"):
            await create(service, a_map("m"), CONFIGMAP)
        assert len(hook.paths) == 11


async def test_a_webhook_that_calls_itself_ends_at_its_time_limit(tmp_path: Path) -> None:
    """It creates an object that it is asked about while it cannot answer."""
    turn = asyncio.Lock()
    inner: list[BaseException] = []

    async def respond(path: str, body: bytes) -> bytes:
        review = msgspec.json.decode(body)
        async with turn:
            if review["request"]["name"] == "outer":
                try:
                    await create(service, a_map("inner"), CONFIGMAP)
                except InternalError as error:
                    inner.append(error)
            return http_response(review_response(review, {}))

    async with a_raw_hook(tmp_path, respond) as hook, a_calling_service(tmp_path) as service:
        await configure(service, a_webhook(hook, timeoutSeconds=1))
        with pytest.raises(InternalError, match="context deadline exceeded"):
            await create(service, a_map("outer"), CONFIGMAP)
        async with turn:
            assert [str(error) for error in inner if "deadline exceeded" in str(error)]


async def test_many_calls_of_a_hanging_webhook_delay_no_other_webhook(tmp_path: Path) -> None:
    hanging, released = asyncio.Semaphore(0), asyncio.Event()

    async def respond(path: str, body: bytes) -> bytes:
        review = msgspec.json.decode(body)
        if path.startswith("/hangs"):
            hanging.release()
            await released.wait()
        return http_response(review_response(review, {}))

    async with a_raw_hook(tmp_path, respond) as hook, a_calling_service(tmp_path) as service:
        for path in ("hangs", "fine"):
            chosen = {"matchLabels": {"webhook": path}}
            webhook = a_webhook(
                hook,
                f"{path}.test.dev",
                clientConfig=hook.client(f"/{path}"),
                objectSelector=chosen,
            )
            await configure(service, webhook, name=path, mutating=True)

        async def make(number: int, webhook: str) -> None:
            labels = {"webhook": webhook}
            body = a_map(f"{webhook}-{number}", labels=labels)
            await service.create(CONFIGMAP, "default", body, PERSON)

        waiting = [asyncio.create_task(make(number, "hangs")) for number in range(50)]
        for _ in waiting:
            await hanging.acquire()
        for number in range(5):
            await make(number, "fine")
        assert not any(task.done() for task in waiting)
        released.set()
        await asyncio.gather(*waiting)
