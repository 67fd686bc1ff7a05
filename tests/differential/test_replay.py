"""Replay of the scenarios recorded on Kubernetes (`make differential RECORD=1`)."""

from pathlib import Path

import pytest

from onejob.virtual_time import run_virtual
from tests.differential.comparing import differences
from tests.differential.known_differences import KNOWN
from tests.differential.registry import scenarios
from tests.differential.running import LogFileImport, load_recorded, play, prepare
from tests.differential.transports import in_virtual_time

_RECORDED = load_recorded()


async def _transcript(name: str, folder: Path) -> LogFileImport:
    async with in_virtual_time(folder) as transport:
        await prepare(transport)
        return await play(name, scenarios()[name], transport)


@pytest.mark.parametrize("name", scenarios())
def test_onejob_does_as_kubernetes_did(name: str, tmp_path: Path) -> None:
    ours = run_virtual(_transcript(name, tmp_path))
    found = differences(name, _RECORDED[name], ours)
    unknown = [one for one in found if not any(known.covers(one) for known in KNOWN)]
    assert not unknown, "\n".join(map(str, unknown))


def test_each_recording_has_its_scenario() -> None:
    assert _RECORDED.keys() == scenarios().keys()
