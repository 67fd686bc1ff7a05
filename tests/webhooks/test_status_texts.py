"""Texts of unsuccessful responses of webhooks."""

import pytest

from onejob.webhooks.status_texts import is_success, seconds_until_retry, status_text


@pytest.mark.parametrize(
    ("status", "content_type", "body", "text"),
    [
        (404, "", b"gone", "the server could not find the requested resource"),
        (403, "text/plain", b" not you\n", "not you"),
        (
            500,
            "",
            b'a "b"',
            'an error on the server ("a \\"b\\"") has prevented the request from succeeding',
        ),
        (
            500,
            "text/html",
            b"x" * 5000,
            f'an error on the server ("{"x" * 2048}") has prevented the request from succeeding',
        ),
        (
            500,
            "image/png",
            b"x",
            'an error on the server ("unknown") has prevented the request from succeeding',
        ),
        (502, "application/json", b'{"kind": "Status", "message": "words"}', "words"),
        (
            502,
            "application/json",
            b'{"kind": "Pod"}',
            'an error on the server ("unknown") has prevented the request from succeeding',
        ),
        (
            502,
            "application/json",
            b"[" * 5000,
            'an error on the server ("unknown") has prevented the request from succeeding',
        ),
        (302, "", b"", "the server responded with the status code 302; redirects are not followed"),
        (
            418,
            "",
            b"",
            "the server responded with the status code 418 but did not return more information",
        ),
    ],
)
def test_texts(status: int, content_type: str, body: bytes, text: str) -> None:
    assert status_text(status, content_type, body) == text


def test_which_responses_are_final() -> None:
    assert [status for status in (199, 200, 206, 207, 302) if is_success(status)] == [200, 206]
    assert seconds_until_retry(429, "3") == 3
    assert seconds_until_retry(503, "0") == 0
    for status, header in ((503, ""), (503, "soon"), (503, "-1"), (404, "3"), (200, "3")):
        assert seconds_until_retry(status, header) is None
