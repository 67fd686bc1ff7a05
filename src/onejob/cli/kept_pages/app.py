"""Requests to the dashboard of kept runs: sign-in, the list of runs, and each run below /runs/ID.

A run is opened at the first request about it; a few stay open.
"""

import asyncio
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from onejob.api.http.requests import Request
from onejob.api.http.responses import Response, error_response
from onejob.cli.errors import CommandError
from onejob.cli.kept_pages.run_app import KeptRunApp, SignIn, StoreApp
from onejob.cli.kept_runs import kept_runs, run_state
from onejob.cli.reports.runs import described_run
from onejob.clock import Clock
from onejob.informers.cache import Cache
from onejob.store.log import LogStore
from onejob.wire.errors import ApiError, InternalError, NotFound, Unauthorized

#: Runs whose state stays open; the one used longest ago makes room.
_MAX_OPEN: Final = 4
_PREFIX: Final = "/runs/"


class KeptRunsApp:
    """The application that the listener serves; `close` ends it."""

    def __init__(self, root: StoreApp, sign_in: SignIn, runs: Path, clock: Clock) -> None:
        self._root = root
        self._sign_in = sign_in
        self._runs = runs
        self._clock = clock
        #: By id, the run used longest ago first.
        self._open: dict[str, KeptRunApp] = {}
        self._opening = asyncio.Lock()

    @classmethod
    async def create(
        cls, runs: Path, scratch: Path, sign_in: SignIn, clock: Clock
    ) -> "KeptRunsApp":
        """Return the application for the runs in a folder.

        `scratch` is an empty folder, for a store without objects: it answers what is not about a
        run.
        """
        store = await LogStore.open(scratch / "empty.db", clock=clock)
        root = StoreApp(store, sign_in, clock, pods=Cache(), kept_runs=lambda: listed_runs(runs))
        return cls(root, sign_in, runs, clock)

    async def __call__(self, request: Request) -> Response:
        """Return the response, whose `on_end` must be called. Raises ClientGone."""
        run_id, slash, rest = request.raw_path.removeprefix(_PREFIX).partition("/")
        if not request.raw_path.startswith(_PREFIX) or not slash:
            return await self._root.app(request)
        try:
            if self._root.pages.session(request.fields) is None:
                # Opening a run is work, which only the user may cause.
                raise Unauthorized("Unauthorized")
            run = await self._opened(run_id)
        except ApiError as error:
            return error_response(error)
        return await run.app(replace(request, raw_path=f"/{rest}"))

    def close_streams(self) -> None:
        """End all endless streams, including streams that start later."""
        for app in (self._root.app, *(run.app for run in self._open.values())):
            app.close_streams()

    async def close(self) -> None:
        while self._open:
            await self._open.pop(next(iter(self._open))).close()
        await self._root.close()

    async def _opened(self, run_id: str) -> KeptRunApp:
        """Return the application of a run. Raises NotFound, InternalError."""
        async with self._opening:
            found = self._open.pop(run_id, None)
            if found is None:
                found = await self._open_run(run_id)
            self._open[run_id] = found
            while len(self._open) > _MAX_OPEN:
                await self._open.pop(next(iter(self._open))).close()
            return found

    async def _open_run(self, run_id: str) -> KeptRunApp:
        for folder, run in kept_runs(self._runs):
            if run.id == run_id and run.on is None:
                try:
                    return await KeptRunApp.open(
                        folder, run, self._sign_in, self._clock, lambda: listed_runs(self._runs)
                    )
                except CommandError as error:
                    raise InternalError("; ".join(error.lines)) from None
        raise NotFound(f"run {run_id} is not kept here")


def listed_runs(runs: Path) -> list[dict[str, Any]]:
    """Return all kept runs, newest first. Those of clusters have `remote` set."""
    return [
        {**described_run(*run_state(folder)), "remote": run.on is not None}
        for folder, run in kept_runs(runs)
    ]
