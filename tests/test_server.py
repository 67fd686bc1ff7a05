"""Failure of a part of the control plane, which would hang unless the failure were reported."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from onejob.benchmarks.plane import a_job
from onejob.control_plane import ControlPlane
from onejob.objects.meta import JOBS, Key
from tests.server_support import a_plane

pytestmark = pytest.mark.virtual_time


async def why_it_failed(folder: Path, scene: Callable[[ControlPlane], Awaitable[None]]) -> str:
    async with a_plane(folder) as plane:
        await scene(plane)
        async with asyncio.timeout(60):
            return await plane.failed


def raises(*_: object) -> None:
    raise ZeroDivisionError


async def test_an_informer_that_ends_is_noticed(tmp_path: Path) -> None:
    async def scene(plane: ControlPlane) -> None:
        plane.informers.pods.on_change(raises)
        await plane.client.write(a_job("j", completions=1, parallelism=1))

    assert "ZeroDivisionError" in await why_it_failed(tmp_path, scene)


async def test_a_part_of_the_node_that_ends_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(plane: ControlPlane) -> None:
        monkeypatch.setattr(plane.node._node, "_renew_lease", raises)

    assert "ZeroDivisionError" in await why_it_failed(tmp_path, scene)


async def test_a_bug_with_one_pod_does_not_stop_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A server that exited over one Pod would do so again after its restart."""
    async with a_plane(tmp_path) as plane:
        with monkeypatch.context() as patch:
            patch.setattr(plane.node.runtime, "launch", raises)
            await plane.client.write(a_job("bad", completions=1, parallelism=1))
            await asyncio.sleep(60)
        await plane.client.write(a_job("good", completions=1, parallelism=1))
        await asyncio.sleep(60)
        assert not plane.failed.done()
        good = await plane.client.get(Key(JOBS, "default", "good"))
        assert b'"Complete"' in good
    assert "unexpected error" in caplog.text


async def test_a_callback_that_raises_is_noticed(tmp_path: Path) -> None:
    async def scene(plane: ControlPlane) -> None:
        asyncio.get_running_loop().call_soon(raises)

    assert "ZeroDivisionError" in await why_it_failed(tmp_path, scene)


async def test_a_plane_that_is_stopped_has_not_failed(tmp_path: Path) -> None:
    async with a_plane(tmp_path) as plane:
        await plane.client.write(a_job("j", completions=1, parallelism=1))
        await asyncio.sleep(60)
    await asyncio.sleep(60)
    assert not plane.failed.done()


@pytest.mark.parametrize(
    "part", ["control_plane.bootstrap", "informers.shared.SharedInformers.start"]
)
async def test_a_plane_that_cannot_begin_leaves_its_folder_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(f"onejob.{part}", raises)
        with pytest.raises(ZeroDivisionError):
            async with a_plane(tmp_path):
                pass
    async with a_plane(tmp_path) as plane:
        await plane.client.write(a_job("j", completions=1, parallelism=1))
