"""Read-only API on the kept state of a run, served by the server's own request handlers.

The database is copied first: a run that is under way is not disturbed, and the files of an ended
one are not changed.
"""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import apsw

from onejob.api.access.authorization import AllowAuthenticated
from onejob.api.decoding.query import parse_query
from onejob.api.http.endpoints import Endpoints
from onejob.api.http.requests import UserRequest
from onejob.api.http.responses import Response
from onejob.api.http.routing import ResourcePath, Router, verb_for
from onejob.api.service import Service
from onejob.api.unreadable import is_readable
from onejob.cli.errors import EXIT_FAILED, CommandError
from onejob.cli.kept_runs import DATABASE, Run, is_under_way, run_end
from onejob.cli.sources.base import ApiRequest, ApiResponse
from onejob.client.local import LocalClient
from onejob.clock import Clock, SystemClock
from onejob.gates import FeatureGates
from onejob.node.logs.pod_logs import pod_logs
from onejob.node.logs.reading import log_path, read_logs
from onejob.node.outputs.serving import OutputFiles
from onejob.node.runtime import AttemptRef
from onejob.objects.meta import PODS, Key
from onejob.store.base import CannotOpen, DamagedDocument
from onejob.store.log import LogStore
from onejob.store.writer import LoopCommitter
from onejob.wire.requests import INTERNAL, LogOptions


class StoredApi:
    """Api on the kept state of one run; writes raise CommandError.

    Owns an event loop, because the request handlers are asynchronous.
    """

    def __init__(self, folder: Path, run: Run) -> None:
        self.run = run
        self.folder = folder
        self.title = f"run {run.id}"
        self.namespace = ""
        self.on_this_machine = True
        # Checked before copying: only the state of a run that has already ended is final.
        self.ended = run_end(folder)
        self._loop = asyncio.new_event_loop()
        self._copy = Path(tempfile.mkdtemp(prefix="onejob-read-"))
        try:
            self._store = self._loop.run_until_complete(
                open_copy(folder, self._copy, run, in_use=self.ended is None)
            )
        except BaseException:
            self._clean_up()
            raise
        self._endpoints = self._serve()

    def send(self, ask: ApiRequest) -> ApiResponse:
        answer = self._answer(ask)
        if isinstance(answer.body, bytes):
            return ApiResponse(answer.code, answer.body)
        return ApiResponse(answer.code, b"".join(self._iterate_body(answer.body)))

    def stream(self, ask: ApiRequest) -> Iterator[bytes]:
        answer = self._answer(ask)
        if isinstance(answer.body, bytes):
            yield answer.body
        else:
            yield from self._iterate_body(answer.body)

    def fresh(self) -> "StoredApi":
        """Return a second reader of the same run, for another thread."""
        return StoredApi(self.folder, self.run)

    def close(self) -> None:
        if not self._loop.is_closed():
            self._loop.run_until_complete(self._store.close())
            self._clean_up()

    def _clean_up(self) -> None:
        self._loop.close()
        shutil.rmtree(self._copy, ignore_errors=True)

    def _serve(self) -> Endpoints:
        service = Service(self._store, clock=SystemClock(), rng=Random(0), gates=FeatureGates())
        self._router = Router(service.kinds)
        return Endpoints(
            service,
            authorizer=AllowAuthenticated(),
            rng=Random(0),
            logs=KeptLogs(service, self.folder),
            outputs=OutputFiles(self.folder),
        )

    def _answer(self, ask: ApiRequest) -> Response:
        path, _, query = ask.target.partition("?")
        target = self._router.locate(path)
        assert isinstance(target, ResourcePath), path
        if ask.method != "GET":
            raise CommandError(
                f"{self.title} is read-only",
                f"it expires after 7 days; to delete it now: rm -r {self.folder}",
            )
        request = UserRequest(
            ask.method,
            parse_query(query.encode()),
            {b"accept": ask.accept.encode()},
            INTERNAL,
        )
        verb = verb_for(ask.method, target)
        try:
            return self._loop.run_until_complete(self._endpoints.answer(request, target, verb))
        except DamagedDocument as error:
            raise CommandError(
                f"{self.title}: {error}", "the other objects of the run are readable"
            ) from None

    def _iterate_body(self, body: AsyncIterator[bytes]) -> Iterator[bytes]:
        while True:
            try:
                yield self._loop.run_until_complete(anext(body))
            except StopAsyncIteration:
                return


async def open_copy(folder: Path, copy: Path, run: Run, *, in_use: bool) -> LogStore:
    """Return the state of a run, of which a copy is made in the folder `copy`.

    `in_use` says whether the run is under way. Raises CommandError.
    """
    try:
        if in_use:
            _copy_in_use(folder / DATABASE, copy / DATABASE)
        else:
            _copy_files(folder, copy)
        return await LogStore.open(
            copy / DATABASE,
            clock=SystemClock(),
            committer=LoopCommitter(),
            is_readable=is_readable,
        )
    except (apsw.Error, CannotOpen, OSError) as error:
        raise CommandError(
            f"cannot read run {run.id}: {error}", f"see {folder}", exit_code=EXIT_FAILED
        ) from None


class KeptLogs:
    """`api.sessions.pod_streams.LogSource` on the log files of a kept run."""

    def __init__(self, service: Service, folder: Path) -> None:
        self._client = LocalClient(service)
        self._files = _LogFiles(folder, service.clock)

    async def logs(
        self, namespace: str, name: str, container: str, options: LogOptions
    ) -> AsyncIterator[bytes]:
        key = Key(PODS, namespace, name)
        return pod_logs(self._client, self._files, key, container, options)


class _LogFiles:
    """`onejob.node.logs.pod_logs.LogKeeper` on the log files of a kept run.

    A container counts as writing while its run is under way: the copy of the database does not show
    when the container ends.
    """

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock

    def logs(self, ref: AttemptRef, options: LogOptions) -> AsyncIterator[bytes]:
        path = log_path(self._folder, *ref)
        return read_logs(path, options, self._clock.now(), lambda: is_under_way(self._folder))


def _copy_files(source: Path, target: Path) -> None:
    """Copy the database files of an ended run.

    A killed run may have left a journal or WAL that only a writer can recover, and the original
    must not be written.
    """
    for suffix in ("", "-wal", "-journal"):
        with suppress(FileNotFoundError):
            shutil.copyfile(source / (DATABASE + suffix), target / (DATABASE + suffix))


def _copy_in_use(source: Path, target: Path) -> None:
    reader = apsw.Connection(str(source), flags=apsw.SQLITE_OPEN_READONLY)
    writer = apsw.Connection(str(target))
    try:
        with writer.backup("main", reader, "main") as backup:
            while not backup.done:
                backup.step()
    finally:
        writer.close()
        reader.close()
