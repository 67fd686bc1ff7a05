"""Outputs and progress of Jobs, read from a data directory for the API."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from onejob.node.outputs.folders import outputs_of_job, read_progress
from onejob.planning.progress import PodProgress


class OutputFiles:
    """`api.job_records.OutputSource` on the folders of a data directory.

    Files are read in worker threads, one piece at a time, at the client's reading speed.
    """

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir

    async def outputs(
        self, namespace: str, uid: str, index: int | None, part: str, *, one: bool
    ) -> AsyncIterator[bytes]:
        # Imported on use, with the tarfile module.
        from onejob.node.outputs.archive import tar_pieces

        found = await asyncio.to_thread(outputs_of_job, self._data_dir, namespace, uid, one=one)
        if index is not None:
            found = [kept for kept in found if kept.record.index == index]
        flat = one or index is not None
        pieces = tar_pieces([("" if flat else kept.place, kept.files) for kept in found], part)
        while piece := await asyncio.to_thread(next, pieces, b""):
            yield piece

    async def progress(self, namespace: str, uid: str) -> Sequence[PodProgress]:
        return await asyncio.to_thread(self._progress, namespace, uid)

    def _progress(self, namespace: str, uid: str) -> Sequence[PodProgress]:
        found = outputs_of_job(self._data_dir, namespace, uid)
        return [one for kept in found if (one := read_progress(kept)) is not None]
