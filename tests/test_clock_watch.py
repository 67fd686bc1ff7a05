"""Notification of listeners when the wall clock is set."""

import asyncio
import os
import select
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial

import pytest

from onejob.clock import SystemClock
from onejob.clock_watch import LOOK_EVERY_SECONDS, ClockWatch, open_clock_alarm
from tests.controllers.housekeeping import a_settable_clock


async def watching(watch: ClockWatch, scene: Callable[[], object]) -> None:
    task = asyncio.create_task(watch.run())
    try:
        await asyncio.sleep(0.1)
        scene()
        await asyncio.sleep(2 * LOOK_EVERY_SECONDS)
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def jumps_seen(*steps: float) -> int:
    """Return how often a listener is called when the clock is set by each of these steps."""
    clock = a_settable_clock()
    seen: list[float] = []
    watch = ClockWatch(clock)
    watch.on_jump(lambda: seen.append(clock.monotonic()))
    for seconds in steps:
        await watching(watch, partial(clock.set_by, timedelta(seconds=seconds)))
    return len(seen)


@pytest.mark.parametrize(
    ("steps", "jumps"),
    [
        ([], 0),
        ([0], 0),
        ([86400], 1),
        ([-3600], 1),
        ([3600, -3600], 2),
        ([0.5], 0),
        ([0.5, -0.5, 0.5, -0.5], 0),
        ([0.6, 0.6], 1),
        ([-0.6, -0.6], 1),
    ],
)
@pytest.mark.virtual_time
async def test_steps_of_more_than_a_second_in_sum_are_jumps(steps: list[float], jumps: int) -> None:
    assert await jumps_seen(*steps) == jumps


@pytest.mark.virtual_time
async def test_all_listeners_are_notified() -> None:
    clock = a_settable_clock()
    seen: list[str] = []
    watch = ClockWatch(clock)
    for name in ("a", "b"):
        watch.on_jump(partial(seen.append, name))
    await watching(watch, lambda: clock.set_by(timedelta(hours=1)))
    assert seen == ["a", "b"]


@pytest.mark.virtual_time
async def test_clock_jump_is_detected_at_once_by_kernel_alarm() -> None:
    loop = asyncio.get_running_loop()
    clock = a_settable_clock()
    alarm = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    kept = os.dup(alarm)
    seen: list[float] = []
    watch = ClockWatch(clock, lambda: alarm)
    watch.on_jump(lambda: seen.append(loop.time()))

    def set_clock() -> None:
        clock.set_by(timedelta(hours=1))
        os.eventfd_write(kept, 1)

    await watching(watch, set_clock)
    assert seen == [0.1]
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(alarm)
    os.close(kept)


@pytest.mark.virtual_time
async def test_where_the_kernel_does_not_tell_it_is_looked_for() -> None:
    def refuse() -> int:
        raise OSError(38, "Function not implemented")

    clock = a_settable_clock()
    seen: list[int] = []
    watch = ClockWatch(clock, refuse)
    watch.on_jump(lambda: seen.append(1))
    await watching(watch, lambda: clock.set_by(timedelta(hours=1)))
    assert len(seen) == 1


def test_kernel_alarm_does_not_fire_without_clock_change() -> None:
    try:
        alarm = open_clock_alarm()
    except OSError as error:
        pytest.skip(f"no such alarm on this machine: {error}")
    try:
        assert select.select([alarm], [], [], 0)[0] == []
    finally:
        os.close(alarm)


async def test_the_systems_clock_is_watched_without_noticing_anything() -> None:
    seen: list[int] = []
    watch = ClockWatch(SystemClock())
    watch.on_jump(lambda: seen.append(1))
    task = asyncio.create_task(watch.run())
    await asyncio.sleep(0.05)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert seen == []
