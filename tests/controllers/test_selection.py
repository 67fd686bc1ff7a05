"""Selection of controllers: a control plane without some of them, or without a node."""

import asyncio
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from onejob.benchmarks.plane import a_job
from onejob.cli.main import run_command
from onejob.client.base import Selection
from onejob.control_plane import ControlPlane, Dependencies, Settings
from onejob.controllers.selection import (
    ALL,
    CRONJOB,
    GARBAGE,
    JOB,
    UnknownController,
    select_controllers,
)
from onejob.node.options import NodeOptions
from onejob.store.writer import LoopCommitter
from onejob.virtual_time import virtual_clock

pytestmark = pytest.mark.virtual_time


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("*", ALL),
        ("", frozenset()),
        ("job-controller", {JOB}),
        ("job, cronjob", {JOB, CRONJOB}),
        ("*,-job", ALL - {JOB}),
        ("-job-controller,*,-garbagecollector", ALL - {JOB, GARBAGE}),
        ("-job", frozenset()),
        ("-job,job,*", ALL - {JOB}),
        ("job-controller,-job", {JOB}),
    ],
)
def test_names_choose_as_in_kube_controller_manager(text: str, expected: frozenset[str]) -> None:
    assert select_controllers(text) == expected


@pytest.mark.parametrize("text", ["jobs", "*,-jobs", "-*", "-", "Job"])
def test_an_unknown_name_is_refused(text: str) -> None:
    with pytest.raises(UnknownController, match="is not in the list of known controllers: "):
        select_controllers(text)


def test_controller_selection_error_names_problem(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["serve", "--controllers", "*,-jib", "--data-dir", str(tmp_path)]) == 2
    errors = capsys.readouterr().err
    assert errors.startswith("error: --controllers: 'jib' is not in the list of known controllers")
    assert errors.count("\n") == 1


async def _after_a_minute(folder: Path, resource: str, **settings: Any) -> list[dict[str, Any]]:
    """Return the objects of a kind, a minute after a Job was created."""
    plane = await ControlPlane.start(
        Settings(folder, NodeOptions(runtime="simulated"), **settings),
        Dependencies(clock=virtual_clock(), rng=Random(1), committer=LoopCommitter()),
    )
    try:
        await plane.client.write(a_job("j", completions=1, parallelism=1))
        await asyncio.sleep(60)
        page = await plane.client.list(Selection(resource))
        return [msgspec.json.decode(item) for item in page.documents]
    finally:
        await plane.stop()


async def test_disabled_controller_leaves_jobs_untouched(tmp_path: Path) -> None:
    (job,) = await _after_a_minute(tmp_path, "jobs.batch", controllers=ALL - {JOB})
    assert job["status"] == {}


async def test_pods_wait_where_there_is_no_node(tmp_path: Path) -> None:
    (pod,) = await _after_a_minute(tmp_path, "pods", with_node=False)
    assert pod["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    assert "nodeName" not in pod["spec"]


async def test_no_node_registers_itself_where_there_is_none(tmp_path: Path) -> None:
    assert await _after_a_minute(tmp_path, "nodes", with_node=False) == []
