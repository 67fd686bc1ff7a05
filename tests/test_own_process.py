"""Garbage collector settings of a process that onejob does not share."""

import subprocess
import sys

_SETTLED = """
import asyncio, gc
from onejob import own_process, virtual_time

class Cycle:
    def __init__(self):
        self.me = self

def cycles():
    return sum(type(found) is Cycle for found in gc.get_objects())

looks = []
gc.callbacks.append(lambda phase, info: looks.append(info["generation"]))
cpu_seconds = 0.0
keeps = [[] for _ in range(10_000)]

async def check():
    global cpu_seconds
    own_process.settle(lambda: cpu_seconds)
    assert not any(found is keeps for found in gc.get_objects()), "it would be looked at again"
    looks.clear()
"""
_END = """
virtual_time.run_virtual(check())
"""


def _run(body: str) -> None:
    indented = "".join(f"    {line}\n" for line in body.strip().splitlines())
    subprocess.run([sys.executable, "-c", _SETTLED + indented + _END], check=True)


def test_frozen_objects_are_skipped_but_young_garbage_is_collected() -> None:
    _run("""
Cycle()
keeps.extend([] for _ in range(200_000))
assert looks, "nobody looked"
assert set(looks) == {0}, "all of it was looked at, which takes long"
assert not cycles()
""")


_GROWN_OLD = """
old = Cycle()
keeps.extend([] for _ in range(20_000))
looks.clear()
del old
assert cycles()
"""


def test_full_collection_runs_in_quiet_period() -> None:
    _run(
        _GROWN_OLD
        + """
cpu_seconds += 0.1
await asyncio.sleep(11)
assert not cycles()
assert looks.count(2) == 2, "its start and its end"
await asyncio.sleep(100)
assert looks.count(2) == 2, "nothing has grown old since"
"""
    )


def test_a_busy_process_is_stopped_for_a_look_at_everything_every_ten_minutes_at_most() -> None:
    _run(
        _GROWN_OLD
        + """
for _ in range(59):
    cpu_seconds += 9
    await asyncio.sleep(10)
assert 2 not in looks
for _ in range(2):
    cpu_seconds += 9
    await asyncio.sleep(10)
assert not cycles()
"""
    )


def test_full_collection_waits_an_hour_with_many_objects() -> None:
    _run(
        """
old = Cycle()
keeps.extend([] for _ in range(200_000))
looks.clear()
del old
await asyncio.sleep(3_600)
assert 2 not in looks, "it takes longer than a request may wait"
await asyncio.sleep(20)
assert not cycles()
"""
    )


def test_collection_is_disabled_during_startup() -> None:
    program = """
import asyncio, gc
from onejob import own_process

looks = []
gc.callbacks.append(lambda phase, info: looks.append(phase))

async def check():
    own_process.disable_gc_for_startup()
    keeps = [[] for _ in range(200_000)]
    assert not looks
    own_process.settle()
    keeps.extend([] for _ in range(2_000))
    assert looks

asyncio.run(check())
"""
    subprocess.run([sys.executable, "-c", program], check=True)
