"""Dashboard of a single run (`onejob run --ui`): its control plane listens on loopback."""

import asyncio
import fcntl
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

import msgspec

from onejob.api.access.certificates import BadAuthority, ensure_certificates, server_names
from onejob.api.http.serving import CannotListen
from onejob.cli.display.browsers import open_browser
from onejob.cli.errors import CommandError
from onejob.cli.places import DataDir, make_private
from onejob.cli.run.progress import JobProgress
from onejob.clock import Clock
from onejob.control_plane import ControlPlane, Settings
from onejob.dashboard.files import MISSING, Files
from onejob.dashboard.sessions import MAX_SESSION_SECONDS
from onejob.diagnosis.durations import short_seconds
from onejob.server import HttpsServer

_HOST: Final = "127.0.0.1"


class PageOptions(msgspec.Struct, frozen=True):
    """Options of a run's dashboard."""

    #: Seconds to keep serving after the last Job has ended; None means until Ctrl-C.
    stays_seconds: float | None
    open_browser: bool


def page_options(
    stays_seconds: float | None, environment: Mapping[str, str], *, interactive: bool
) -> PageOptions:
    """Return the options. `stays_seconds` is the value given on the command line, or None.

    Without a terminal, or in CI, no browser is opened, and the default is to stop at once instead
    of waiting for a Ctrl-C that never comes.
    """
    watched = interactive and not environment.get("CI")
    if stays_seconds is None and not watched:
        stays_seconds = 0.0
    return PageOptions(stays_seconds, open_browser=watched)


class RunPage:
    """Dashboard of a run, on an HTTPS server that shares its control plane."""

    def __init__(self, server: HttpsServer, options: PageOptions) -> None:
        self._server = server
        self._options = options

    @classmethod
    async def start(
        cls, settings: Settings, data_dir: DataDir | None, clock: Clock, options: PageOptions
    ) -> "RunPage":
        """Start the HTTPS server together with the control plane.

        Raises CommandError, and the errors of `ControlPlane.start`.
        """
        if not Files().built:
            message, remedy = MISSING
            raise CommandError(f"--ui: {message}", remedy)
        try:
            server = await HttpsServer.start(
                settings,
                host=_HOST,
                port=0,
                kubeconfig=settings.data_dir / "kubeconfig",
                pki=None if data_dir is None else _shared_authority(data_dir, clock),
            )
        except (BadAuthority, CannotListen) as error:
            raise CommandError(f"--ui: {error}") from None
        return cls(server, options)

    @property
    def plane(self) -> ControlPlane:
        return self._server.plane

    def show(self, jobs: Sequence[JobProgress]) -> str:
        """Open the dashboard in a browser if wanted and possible; return the line to print."""
        # The sign-in code works once, for a reader of this terminal, and is valid for the lifetime
        # of a session.
        address = self._server.sign_in_address(MAX_SESSION_SECONDS) + _first_page(jobs)
        if self._options.open_browser and open_browser(address):
            return f"dashboard: opened {self._server.url}/ui/ in a browser"
        return f"dashboard: {address}"

    async def stay(self, *ends: "asyncio.Future[Any]") -> None:
        """Wait until one of the futures is done or the time to stay has passed."""
        timeout = self._options.stays_seconds
        await asyncio.wait(ends, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)

    @property
    def stay_text(self) -> str:
        """Line to print before `stay`; "" if it ends at once."""
        seconds = self._options.stays_seconds
        if seconds == 0:
            return ""
        how_long = "" if seconds is None else f"for {short_seconds(seconds)}, or "
        return f"the dashboard is served {how_long}until Ctrl-C"

    async def stop(self) -> None:
        """Stop the server together with the control plane."""
        await self._server.stop()


def _first_page(jobs: Sequence[JobProgress]) -> str:
    """Return the query of a sign-in address: the page of the only Job, else the list of Jobs."""
    path = ["jobs"]
    if len(jobs) == 1:
        path += [jobs[0].key.namespace, jobs[0].key.name]
    return "?" + urlencode({"open": "/".join(quote(part, safe="") for part in path)})


def _shared_authority(data_dir: DataDir, clock: Clock) -> Path:
    """Return the PKI folder shared by all runs, so that browsers have to trust its CA only once."""
    folder = data_dir.path / "run-pki"
    make_private(folder)
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        # Another run may be creating it at the same time.
        fcntl.flock(lock, fcntl.LOCK_EX)
        ensure_certificates(folder, server_names(_HOST), clock.now())
    finally:
        os.close(lock)
    return folder
