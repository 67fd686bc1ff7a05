"""Hostile webhooks: each fails with a documented Status, within limits, and delays no other."""

import asyncio
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
