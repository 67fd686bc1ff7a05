"""Outputs of Pods whose containers belong to the engine."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from onejob.control_plane import ControlPlane, Settings
from onejob.node.options import NodeOptions, OutputRetention
from onejob.node.outputs.folders import KeptOutput, kept_outputs, read_progress
from onejob.objects.job import Job
from onejob.objects.meta import JOBS, PODS, Key
from tests.build import a_job, creation, shell, template
from tests.node.podman.support import ENGINE, IMAGE, NEEDS_PODMAN, OPTIONS
from tests.node.support import condition

pytestmark = NEEDS_PODMAN


@asynccontextmanager
async def a_plane(folder: Path, **retention: Any) -> AsyncIterator[ControlPlane]:
    options = NodeOptions(
        runtime="podman",
        engine=ENGINE,
        engine_options=OPTIONS,
        pods_end_with_server=True,
        outputs=OutputRetention(**retention),
    )
    plane = await ControlPlane.start(Settings(folder / "state", options))
    try:
        yield plane
    finally:
        await plane.stop()


async def run(plane: ControlPlane, script: str, name: str = "j", **annotations: str) -> Job:
    """Run a Job to its end."""
    metadata = {"annotations": {f"onejob.dev/{key}": text for key, text in annotations.items()}}
    pod: Any = {"metadata": metadata, "terminationGracePeriodSeconds": 0}
    made = template(shell(script, image=IMAGE), **pod)
    await plane.client.write(creation(a_job(name, template=made, backoffLimit=0)))
    cache, key = plane.informers.jobs.cache, Key(JOBS, "default", name)
    async with asyncio.timeout(120):
        while (job := cache.get(key)) is None or not job.finished:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return job


def kept(plane: ControlPlane, job: Job) -> KeptOutput:
    (found,) = kept_outputs(
        plane.settings.data_dir, lambda record: record.job_uid == job.metadata.uid
    )
    return found


async def test_outputs_and_progress_are_those_of_the_container(place: Path) -> None:
    async with a_plane(place) as plane:
        script = 'echo hi > "$ONEJOB_OUTPUT/file" && echo 1/2 half >> "$ONEJOB_PROGRESS"'
        job = await run(plane, script)
        assert job.condition_is_true("Complete")
        found = kept(plane, job)
        assert Path(found.files, "file").read_text() == "hi\n"
        progress = read_progress(found)
        assert progress is not None
        assert (progress.done, progress.total, progress.text) == (1, 2, "half")


async def test_outputs_are_inputs_of_a_later_job_at_the_chosen_path(place: Path) -> None:
    async with a_plane(place) as plane:
        first = await run(plane, "echo hi > /results/file", **{"output-path": "/results"})
        inputs = f'[{{"job":"j","uid":"{first.metadata.uid}","mountPath":"/in"}}]'
        script = 'cat /in/file > "$ONEJOB_OUTPUT/copy"; touch /in/new || echo read-only'
        second = await run(plane, script, "k", inputs=inputs)
        assert second.condition_is_true("Complete")
        assert Path(kept(plane, second).files, "copy").read_text() == "hi\n"
        assert not Path(kept(plane, first).files, "new").exists()


async def test_a_pod_that_exceeds_the_quota_fails(place: Path) -> None:
    async with a_plane(place, quota_bytes=100_000) as plane:
        script = (
            "x=$(echo 123456789 123456789 123456789 123456789); while :; do "
            'echo "$x$x$x$x$x$x$x$x" >> "$ONEJOB_OUTPUT/big"; done'
        )
        job = await run(plane, script)
        assert job.condition_is_true("Failed")
        key = Key(PODS, "default", kept(plane, job).record.name)
        pod = msgspec.json.decode(await plane.client.get(key))
        assert condition(pod, "onejob.dev/OutputQuotaExceeded") is not None
