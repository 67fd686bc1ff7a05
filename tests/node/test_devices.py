"""Assignment of devices to containers."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onejob.client.base import Create
from onejob.control_plane import ControlPlane, Settings
from onejob.node.options import NodeOptions
from onejob.node.process.devices import Devices, NoDevice
from onejob.objects.meta import JOBS
from onejob.objects.pod_spec import Container, Resources
from tests.build import a_job, shell

GPU = "nvidia.com/gpu"


def a_container(gpus: int, name: str = "main") -> Container:
    limits: dict[str, str | int | float] = {GPU: str(gpus)} if gpus else {}
    return Container(name=name, resources=Resources(limits=limits))


def test_devices_are_assigned_once_and_reused_when_free(tmp_path: Path) -> None:
    devices = Devices(tmp_path / "devices.json", {GPU: 3, "cpu": 4000})
    assert devices.assign("a", a_container(2))["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert devices.assign("b", a_container(1))["NVIDIA_VISIBLE_DEVICES"] == "2"
    with pytest.raises(NoDevice, match=r"nvidia\.com/gpu: 1 requested, 0 free"):
        devices.assign("c", a_container(1))
    devices.release("a")
    assert devices.assign("c", a_container(1))["CUDA_VISIBLE_DEVICES"] == "0"


def test_container_without_request_sees_no_devices(tmp_path: Path) -> None:
    devices = Devices(tmp_path / "devices.json", {GPU: 1, "example.com/dongle": 2})
    assert devices.assign("a", a_container(0)) == {
        "CUDA_VISIBLE_DEVICES": "",
        "NVIDIA_VISIBLE_DEVICES": "",
        "ONEJOB_EXAMPLE_COM_DONGLE": "",
    }
    assert Devices(tmp_path / "other.json", {"cpu": 1000}).assign("a", a_container(1)) == {}


def test_a_container_keeps_its_devices_when_it_is_restarted(tmp_path: Path) -> None:
    devices = Devices(tmp_path / "devices.json", {GPU: 2})
    devices.assign("a", a_container(1))
    devices.assign("b", a_container(1))
    devices.ended("b", "main")
    assert devices.assign("b", a_container(1))["CUDA_VISIBLE_DEVICES"] == "1"
    devices.ended("a", "main")
    assert devices.assign("next", a_container(1))["CUDA_VISIBLE_DEVICES"] == "0"


def test_devices_stay_with_pods_that_outlive_the_server(tmp_path: Path) -> None:
    record = tmp_path / "devices.json"
    before = Devices(record, {GPU: 2})
    before.assign("gone", a_container(1))
    before.assign("left", a_container(1))
    after = Devices(record, {GPU: 2})
    after.inherit(["left"])
    assert after.assign("new", a_container(1))["CUDA_VISIBLE_DEVICES"] == "0"
    assert after.variables("left", "main")["CUDA_VISIBLE_DEVICES"] == "1"


def test_a_server_that_may_use_some_devices_gives_only_those(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,GPU-7f")
    devices = Devices(tmp_path / "devices.json", {GPU: 2})
    assert devices.assign("a", a_container(2))["CUDA_VISIBLE_DEVICES"] == "4,GPU-7f"


async def test_pods_that_run_at_once_use_different_devices(tmp_path: Path) -> None:
    """Each process claims its device by creating a folder, and returns it: no two may share one."""
    place = tmp_path / "devices"
    place.mkdir()
    script = (
        f"mkdir {place}/$CUDA_VISIBLE_DEVICES || exit 3; sleep 0.05; "
        f"rmdir {place}/$CUDA_VISIBLE_DEVICES"
    )
    container = shell(script, resources={"limits": {GPU: "1"}})
    job = a_job("gpus", container, completions=20, parallelism=20, backoffLimit=0)
    node = NodeOptions(name="node", pods_end_with_server=True, capacity={GPU: "2"})
    plane = await ControlPlane.start(Settings(tmp_path / "state", node))
    finished: asyncio.Future[Counter[str]] = asyncio.get_running_loop().create_future()

    def see(deltas: Any) -> None:
        for delta in deltas:
            if delta.new is not None and delta.new.finished and not finished.done():
                status = delta.new.status
                finished.set_result(Counter(good=status.succeeded, bad=status.failed))

    plane.informers.jobs.on_change(see)
    try:
        await plane.client.write(Create(JOBS, "default", msgspec.json.encode(job)))
        assert await asyncio.wait_for(finished, 60) == Counter(good=20)
    finally:
        await plane.stop()
