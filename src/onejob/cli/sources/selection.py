"""Lookup order of client commands: a server, then the kept runs.

Neither `$KUBECONFIG` nor `~/.kube/config` is ever read, so that a command cannot delete a
production Job by accident.
"""

import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from onejob.cli.errors import EXIT_FAILED, CommandError
from onejob.cli.kept_runs import Run, RunJob, find_run, is_under_way, kept_runs
from onejob.cli.known_kinds import KnownKinds
from onejob.cli.places import DataDir
from onejob.cli.places import data_dir as find_data_dir
from onejob.cli.resource_args import ResourceArg
from onejob.cli.sources.base import Api, get
from onejob.cli.sources.discovery import discovered
from onejob.objects.meta import JOBS, PODS, WORKFLOWS
from onejob.wire.errors import NotFound
from onejob.wire.kinds import BY_RESOURCE, Kind

if TYPE_CHECKING:
    from onejob.cli.sources.remote_runs import RemoteRunApi
    from onejob.cli.sources.stored_api import StoredApi

#: Runs opened for a list; older ones are found by name only.
_LISTED_RUNS: Final = 20
#: Jobs of kept runs compared in search of a similarly spelled name.
_COMPARED_JOBS: Final = 500


A = TypeVar("A", bound=Api)


class ServerDown(CommandError):
    """The data dir has a server, but it does not answer."""


class Sources(msgspec.Struct, frozen=True):
    """Places where a command looks for objects. Closes every Api that it returned.

    `namespace` is the value of -n, "" without it.
    """

    data_dir: DataDir
    kubeconfig: Path | None = None
    namespace: str = ""
    #: Read kept runs even if a server exists.
    only_runs: bool = False
    #: The only run to read, by its id or a Job's name; "" for all runs.
    run: str = ""
    _opened: list[Api] = msgspec.field(default_factory=list)

    def close(self) -> None:
        """Close every Api that was returned."""
        while self._opened:
            self._opened.pop().close()

    def server(self) -> Api | None:
        """Return the server; None if the data dir never had one. Raises ServerDown."""
        from onejob.cli.sources.http_api import open_http_api

        if self.only_runs:
            return None
        if self.kubeconfig is not None:
            return self._register(open_http_api(self.kubeconfig, "is it running?"))
        if not self.data_dir.has_kubeconfig():
            return None
        start = f"start it with {self._serve_command}"
        api = open_http_api(self.data_dir.kubeconfig, start)
        if not api.answers():
            raise ServerDown(f"{api.title} does not respond", start)
        return self._register(api)

    def require_server(self) -> Api:
        api = self.server()
        if api is None:
            raise CommandError(
                f"no onejob server in {self.data_dir.path}",
                f"start one with {self._serve_command}",
            )
        return api

    def selected_source(self) -> Api:
        """Return the run chosen with --run, else the server. Raises CommandError without either."""
        if not self.run:
            return self.require_server()
        return self._register(self._open_kept(*find_run(self.data_dir.runs, self.run)))

    def listed_server(self) -> Api | None:
        """Return `server()` for commands that list objects.

        If the server is down, the error points to --runs: kept runs are no substitute for a server
        here.
        """
        try:
            return self.server()
        except ServerDown as down:
            raise ServerDown(down.message, f"{down.next_step}; --runs lists kept runs") from None

    def kinds(self) -> KnownKinds:
        """Return the kinds that commands accept; discovery runs only for unknown words."""
        return KnownKinds(self._discover_kinds)

    def _discover_kinds(self) -> Sequence[Kind]:
        """Return the kinds of the server; none if it is down."""
        try:
            api = self.server()
        except ServerDown:
            # A command that needs the server reports that it is down.
            return ()
        return () if api is None else discovered(api)

    def is_local(self, api: Api) -> bool:
        """Return whether the server sees the same file system as this command."""
        return self.kubeconfig is None or api.on_this_machine

    def namespace_in(self, api: Api) -> str:
        return self.namespace or api.namespace

    def runs(self) -> Iterator["StoredApi | RemoteRunApi"]:
        """Yield the newest kept runs, or only the one chosen with --run, newest first."""
        if self.run and (run := find_run(self.data_dir.runs, self.run)[1]).on is not None:
            names = ", ".join(f"job/{job.name}" for job in run.jobs)
            raise CommandError(
                f"run {run.id} is on another cluster, whose objects cannot be listed by run",
                f"name an object: {names}",
            )
        return self._open_runs(islice(self._kept_runs(), _LISTED_RUNS))

    def all_runs(self) -> Iterator["StoredApi | RemoteRunApi"]:
        """Yield all kept runs, regardless of --run."""
        return self._open_runs(kept_runs(self.data_dir.runs))

    def runs_are_kept(self) -> bool:
        return any(True for _ in self.all_kept_runs())

    def all_kept_runs(self) -> Iterator[Run]:
        """Yield the metadata of all kept runs without opening their stores."""
        return (run for _, run in kept_runs(self.data_dir.runs))

    def similar_kept_job(self, name: str) -> str:
        """Return the name of the most similar Job of the kept runs; "" if none is similar."""
        from difflib import get_close_matches

        names = (job.name for run in self.all_kept_runs() for job in run.jobs)
        known = list(dict.fromkeys(islice(names, _COMPARED_JOBS)))
        return next(iter(get_close_matches(name, known, 1)), "")

    def _open_kept(self, folder: Path, run: Run) -> "StoredApi | RemoteRunApi":
        """Return access to the objects of a kept run, here or on its cluster."""
        if run.on is not None:
            from onejob.cli.sources.remote_runs import open_remote_run

            return open_remote_run(folder, run, self.data_dir)
        from onejob.cli.sources.stored_api import StoredApi

        return StoredApi(folder, run)

    def _opened_run(self, folder: Path, run: Run) -> "StoredApi | RemoteRunApi | None":
        """Open a kept run. An unreadable one gets a note and does not hide the others."""
        try:
            return self._open_kept(folder, run)
        except CommandError as error:
            print(f"note: {error.lines[0]}", file=sys.stderr)
            return None

    def _open_runs(self, found: Iterable[tuple[Path, Run]]) -> Iterator["StoredApi | RemoteRunApi"]:
        """Yield the runs of this machine: a list sends no request to the cluster of another."""
        for folder, run in found:
            if run.on is not None:
                continue
            api = self._opened_run(folder, run)
            if api is None:
                continue
            try:
                yield api
            finally:
                api.close()

    def holding(self, arg: ResourceArg) -> tuple[Api, str]:
        """Return the Api that has the object, and its namespace.

        The server comes first, then the newest run that has the object; a note on stderr names the
        run. An ended run is no substitute for a server that responds. Raises NotFound or
        CommandError.
        """
        missing: NotFound | None = None
        down: ServerDown | None = None
        try:
            api = self.server()
        except ServerDown as error:
            api, down = None, error
        if api is not None:
            namespace = self.namespace_in(api)
            try:
                get(api, arg.kind, namespace, arg.name)
            except NotFound as error:
                missing = error
            else:
                return api, namespace
        if self.kubeconfig is None:
            found = self._find_in_kept_runs(arg)
            if found is not None and missing is not None and not is_under_way(found[0].folder):
                run_id = found[0].run.id
                raise CommandError(
                    f"{arg} not found on the server; run {run_id} contains one",
                    f"add --run {run_id} to read it",
                    exit_code=EXIT_FAILED,
                )
            if found is not None:
                why = down.lines[0] if down is not None else f"{arg} not found on the server"
                if down is not None or missing is not None:
                    print(f"note: {why}; showing {found[0].title}", file=sys.stderr)
                return found
        if self.run:
            _, run = find_run(self.data_dir.runs, self.run)
            raise CommandError(
                f"run {run.id} does not contain {arg}",
                f"onejob get {arg.kind.plural} --run {run.id} lists its objects",
                exit_code=EXIT_FAILED,
            )
        if missing is not None:
            raise missing
        if down is not None:
            raise ServerDown(f"{down.message}, and no kept run contains {arg}", down.next_step)
        close = self.similar_kept_job(arg.name) if arg.kind.resource == JOBS else ""
        kept = (job.workflow for run in self.all_kept_runs() for job in run.jobs)
        meant = f"job/{close}" if close else ""
        if arg.kind.resource == JOBS and arg.name in kept:
            meant = f"workflow/{arg.name}"
        raise CommandError(
            f"{arg} not found: no server, and no run of the last 7 days contains it",
            f"did you mean {meant}?"
            if meant
            else "onejob get jobs lists Jobs; onejob serve starts a server",
            exit_code=EXIT_FAILED,
        )

    def job_instead_of(self, pod: ResourceArg) -> ResourceArg | None:
        """Return the Job of that name if it exists and no such Pod does, else None."""
        job = ResourceArg(BY_RESOURCE[JOBS], pod.name)
        return job if self._exists(job) and not self._exists(pod) else None

    def has_on_server(self, arg: ResourceArg) -> bool:
        """Return whether there is a server that responds and has the object."""
        try:
            api = self.server()
            if api is not None:
                get(api, arg.kind, self.namespace_in(api), arg.name)
                return True
        except (NotFound, ServerDown):
            pass
        return False

    def _exists(self, arg: ResourceArg) -> bool:
        return self.has_on_server(arg) or (
            self.kubeconfig is None and self._find_in_kept_runs(arg) is not None
        )

    def require_server_for(self, arg: ResourceArg, instead: str) -> Api:
        """Return the server.

        Raises CommandError, with `instead` as advice, if there is no server but a kept run has the
        object.
        """
        if self.server() is None and self._find_in_kept_runs(arg) is not None:
            raise CommandError(f"no server: {arg} is in a kept run", instead)
        return self.require_server()

    @property
    def _serve_command(self) -> str:
        if self.data_dir == find_data_dir(None):
            return "onejob serve"
        return f"onejob serve --data-dir {shlex.quote(str(self.data_dir.path))}"

    def _kept_runs(self) -> Iterator[tuple[Path, Run]]:
        if self.run:
            return iter((find_run(self.data_dir.runs, self.run),))
        return kept_runs(self.data_dir.runs)

    def _register(self, api: A) -> A:
        """Register a source to be closed at exit, and return it."""
        self._opened.append(api)
        return api

    def _find_in_kept_runs(self, arg: ResourceArg) -> "tuple[StoredApi | RemoteRunApi, str] | None":
        """Return the API of the kept run that contains the object, and its namespace; else None."""
        for folder, run in self._kept_runs():
            namespaces = dict.fromkeys(
                job.namespace
                for job in run.jobs
                if self.namespace in ("", job.namespace) and _may_hold(arg, job)
            )
            if not namespaces:
                continue
            api = self._opened_run(folder, run)
            if api is None:
                continue
            self._register(api)
            for namespace in namespaces:
                try:
                    get(api, arg.kind, namespace, arg.name)
                except NotFound:
                    continue
                except CommandError as error:
                    if run.on is None or self.run:
                        raise
                    # Its cluster does not answer; another run may have the object.
                    print(f"note: {error.lines[0]}", file=sys.stderr)
                    continue
                return api, namespace
        return None


def sources(
    data_dir: str | None,
    kubeconfig: str | None,
    namespace: str | None = None,
    *,
    only_runs: bool = False,
    run: str = "",
) -> Sources:
    if run and kubeconfig:
        raise CommandError(
            "specify either --run or --kubeconfig", "kept runs are in the data directory"
        )
    place = find_data_dir(data_dir)
    if not kubeconfig:
        place.require_trusted()
    return Sources(
        place,
        Path(kubeconfig) if kubeconfig else None,
        namespace or "",
        only_runs or bool(run),
        run,
    )


def _may_hold(arg: ResourceArg, job: RunJob) -> bool:
    """Return whether a run of that Job may contain the object, without opening its store."""
    match arg.kind.resource:
        case resource if resource == JOBS:
            return arg.name == job.name
        case resource if resource == WORKFLOWS:
            return arg.name == job.workflow
        case resource if resource == PODS:
            return arg.name.startswith(job.name[:50])
        case _:
            return True
