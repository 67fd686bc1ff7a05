"""Pytest plugin for coroutine tests: `async def test_…` runs in an event loop of its own.

The loop is real unless the test or its module has the marker `virtual_time`. Property tests get a
loop for every example.
"""

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from onejob.virtual_time import run_virtual

CoroutineTest = Callable[..., Coroutine[Any, Any, None]]


def _synchronous(
    test: CoroutineTest, run: Callable[[Coroutine[Any, Any, None]], None]
) -> Callable[..., None]:
    @functools.wraps(test)
    def run_test(*args: Any, **kwargs: Any) -> None:
        run(test(*args, **kwargs))

    return run_test


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Any:
    run = run_virtual if pyfuncitem.get_closest_marker("virtual_time") else asyncio.run
    property_test = getattr(pyfuncitem.obj, "hypothesis", None)
    if property_test is not None:
        if inspect.iscoroutinefunction(property_test.inner_test):
            property_test.inner_test = _synchronous(property_test.inner_test, run)
    elif inspect.iscoroutinefunction(pyfuncitem.obj):
        pyfuncitem.obj = _synchronous(pyfuncitem.obj, run)
    return (yield)
