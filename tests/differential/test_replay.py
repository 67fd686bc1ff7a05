"""Replay of the scenarios recorded on Kubernetes (`make differential RECORD=1`)."""

import asyncio
from pathlib import Path

import pytest

from onejob.clock import Clock, SystemClock
from onejob.virtual_time import run_virtual, virtual_clock
from tests.differential.comparing import differences
from tests.differential.known_differences import KNOWN
from tests.differential.registry import area, scenarios
from tests.differential.running import LogFileImport, load_recorded, play, prepare
from tests.differential.transports import in_process

_RECORDED = load_recorded()


#: Areas of scenarios that wait for sockets.
_IN_REAL_TIME = ("conversion", "webhooks")


async def _transcript(name: str, folder: Path, clock: Clock) -> LogFileImport:
    async with in_process(folder, clock) as transport:
        await prepare(transport)
        return await play(name, scenarios()[name], transport)


async def _in_virtual_time(name: str, folder: Path) -> LogFileImport:
    return await _transcript(name, folder, virtual_clock())


@pytest.mark.parametrize("name", scenarios())
def test_onejob_does_as_kubernetes_did(name: str, tmp_path: Path) -> None:
    if area(name) in _IN_REAL_TIME:
        ours = asyncio.run(_transcript(name, tmp_path, SystemClock()))
    else:
        ours = run_virtual(_in_virtual_time(name, tmp_path))
    found = differences(name, _RECORDED[name], ours)
    unknown = [one for one in found if not any(known.covers(one) for known in KNOWN)]
    assert not unknown, "\n".join(map(str, unknown))


def test_each_recording_has_its_scenario() -> None:
    assert _RECORDED.keys() == scenarios().keys()
