"""Caches keyed by texts of callers: their size in bytes is bounded, too."""

import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from onejob.api.http.negotiation import negotiate
from onejob.api.http.routing import Router
from onejob.api.short_cache import short_cache
from onejob.wire.errors import ApiError
from onejob.wire.names import qualified_name_errors
from onejob.wire.registry import KindRegistry


def test_short_texts_are_worked_out_once_and_long_ones_each_time() -> None:
    asked: list[str] = []

    @short_cache(2, longest=3)
    def shout(text: str, *, twice: bool = False) -> str:
        asked.append(text)
        return text.upper() * (2 if twice else 1)

    assert [shout("abc"), shout("abc"), shout("abc", twice=True)] == ["ABC", "ABC", "ABCABC"]
    assert asked == ["abc", "abc"]
    assert [shout("abcd"), shout("abcd")] == ["ABCD", "ABCD"]
    assert asked == ["abc", "abc", "abcd", "abcd"]


@pytest.mark.parametrize(
    ("work_out", "text"),
    [
        (Router(KindRegistry()).locate, "/api/v1/namespaces/default/pods/{}"),
        (negotiate, "application/json;x={}"),
        (qualified_name_errors, "{}"),
    ],
)
def test_long_texts_leave_nothing_behind(work_out: Callable[[str], Any], text: str) -> None:
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(300):
            with suppress(ApiError):
                work_out(text.format(f"{number}-" + "x" * 20_000))
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 1_000_000, "all of them are 6 MB"
