"""Listener of the dashboard of kept runs, until Ctrl-C."""

import asyncio
import secrets
import signal
import sys
import tempfile
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlencode

from onejob.api.access.authentication import ADMIN, Credentials
from onejob.api.access.certificates import BadAuthority, ensure_certificates, server_names
from onejob.api.access.tls_files import TlsFiles
from onejob.api.http.serving import ApiServer, CannotListen
from onejob.cli.display.browsers import open_browser
from onejob.cli.errors import CommandError
from onejob.cli.kept_pages.app import KeptRunsApp
from onejob.cli.kept_pages.run_app import SignIn
from onejob.cli.kept_runs import Run
from onejob.cli.places import DataDir, make_private
from onejob.clock import Clock, SystemClock
from onejob.dashboard.files import MISSING, Files
from onejob.dashboard.sessions import MAX_SESSION_SECONDS, Sessions

_HOST: Final = "127.0.0.1"


def serve_kept_runs(place: DataDir, run: Run | None, *, browser: bool) -> None:
    """Serve the dashboard of all kept runs until SIGINT or SIGTERM.

    It begins with the page of `run`, or with the list of all. Raises CommandError.
    """
    if not Files().built:
        raise CommandError(*MISSING)
    asyncio.run(_serve(place, run, browser=browser))


async def _serve(place: DataDir, run: Run | None, *, browser: bool) -> None:
    clock = SystemClock()
    sessions = Sessions(clock)
    sign_in = SignIn(sessions, secrets.token_urlsafe(32))
    with tempfile.TemporaryDirectory(prefix="onejob-ui-") as scratch:
        app = await KeptRunsApp.create(place.runs, Path(scratch), sign_in, clock)
        try:
            server = await _listen(app, place, clock)
            try:
                code = sessions.new_code(
                    ADMIN.name, Credentials(sign_in.token), MAX_SESSION_SECONDS
                )
                address = f"{server.url}/ui/#/sign-in/{code}{_first_page(run)}"
                if not browser or not open_browser(address):
                    print(address, flush=True)
                print("kept runs are served, read-only, until Ctrl-C", file=sys.stderr, flush=True)
                await _stop_requested()
            finally:
                await server.stop()
        finally:
            await app.close()


async def _listen(app: KeptRunsApp, place: DataDir, clock: Clock) -> ApiServer[KeptRunsApp]:
    """Return a listening server. Raises CommandError."""
    # Shared with the dashboards of runs, so that browsers have to trust its authority only once.
    folder = place.path / "run-pki"
    make_private(folder)
    try:
        certificates = ensure_certificates(folder, server_names(_HOST), clock.now())
        tls = TlsFiles().server_context(certificates)
        server = ApiServer(app, host=_HOST, port=0, tls=tls, clock=clock)
        await server.start()
    except (BadAuthority, CannotListen) as error:
        raise CommandError(str(error)) from None
    return server


async def _stop_requested() -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await stop.wait()


def _first_page(run: Run | None) -> str:
    """Return the query of a sign-in address: the page of the run's only Job, or its Jobs."""
    if run is None:
        return ""
    path = ["runs", run.id, "jobs"]
    if len(run.jobs) == 1:
        path += [run.jobs[0].namespace, run.jobs[0].name]
    return "?" + urlencode({"open": "/".join(quote(part, safe="") for part in path)})
