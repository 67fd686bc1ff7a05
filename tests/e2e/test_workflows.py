"""A workflow of real processes: results in a file, `when`, arguments and `finally`."""

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec

from onejob.client.base import Create, Selection
from onejob.control_plane import ControlPlane, Settings
from onejob.node.options import NodeOptions
from onejob.objects.meta import WORKFLOWS
from tests.build import a_task, a_workflow, shell, template


def running(script: str) -> dict[str, Any]:
    return {"template": template(shell(script))}


async def test_workflow_passes_results_between_processes(tmp_path: Path) -> None:
    node = NodeOptions(runtime="process", pods_end_with_server=True)
    extract = a_task(
        "extract",
        results=[{"name": "rows"}],
        job=running("""echo '{"rows": 7}' > $ONEJOB_RESULT"""),
    )
    report = a_task(
        "report",
        "extract",
        when="int(tasks.extract.results.rows) > 5",
        job=running("test $(tasks.extract.results.rows) = 7"),
    )
    clean = a_task("clean", job=running("true"))
    document = a_workflow("wf", extract, report)
    document["spec"]["finally"] = [clean]
    plane = await ControlPlane.start(Settings(tmp_path, node))
    try:
        watch = plane.client.watch(Selection(WORKFLOWS), after=plane.store.revision)
        await plane.client.write(Create(WORKFLOWS, "default", msgspec.json.encode(document)))
        async with asyncio.timeout(60), aclosing(watch) as batches:
            status = await _final_status(batches)
    finally:
        await plane.stop()
    assert [task["state"] for task in status["tasks"]] == ["Complete"] * 3
    assert status["tasks"][0]["results"] == {"rows": "7"}


async def _final_status(batches: Any) -> dict[str, Any]:
    async for batch in batches:
        for event in batch:
            status: dict[str, Any] = msgspec.json.decode(event.document).get("status", {})
            if any(each["type"] in ("Complete", "Failed") for each in status.get("conditions", ())):
                return status
    raise AssertionError("the watch ended")
