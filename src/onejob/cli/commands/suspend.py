"""`onejob suspend` and `onejob resume`: set spec.suspend without remembering the field's name."""

from typing import TYPE_CHECKING, Any

import click

from onejob.cli.completing import complete_object
from onejob.cli.errors import CommandError
from onejob.cli.options import client_options

if TYPE_CHECKING:
    from onejob.cli.sources.selection import Sources

_EPILOG = """\b
Examples:
  onejob suspend job/pi            # stop its Pods, keep its progress
  onejob suspend cronjob/nightly   # no new Jobs; running ones continue
  onejob suspend workflow/etl      # no new tasks; running ones pause
  onejob suspend run/20260131-120000   # same as onejob stop
  onejob suspend job/pi --reason 'disk is being replaced'"""


@click.command(epilog=_EPILOG, short_help="Suspend Jobs or CronJobs")
@click.argument(
    "what", nargs=-1, metavar="job/NAME | cronjob/NAME ...", shell_complete=complete_object
)
@click.option("--reason", default="", metavar="TEXT", help="Reason, which onejob why shows.")
@client_options
def command(what: tuple[str, ...], reason: str, where: "Sources") -> int:
    """Suspend Jobs (their Pods are stopped) or CronJobs (no new Jobs are started)."""
    return set_suspend(where, what, suspended=True, reason=reason)


def set_suspend(
    where: "Sources", what: tuple[str, ...], *, suspended: bool, reason: str = ""
) -> int:
    import msgspec

    from onejob.cli.resource_args import parse_resource_args
    from onejob.cli.sources.base import FIELD_MANAGER, ApiRequest, get, path_of
    from onejob.objects.job import is_finished
    from onejob.objects.meta import CRONJOBS, CRONWORKFLOWS, JOBS, WORKFLOWS
    from onejob.planning.names import AFTER_HELD_ANNOTATION, REASON_ANNOTATION
    from onejob.planning.queue.membership import QUEUED_ANNOTATION

    if any(word.startswith("run/") for word in what):
        _set_runs(where, what, suspended=suspended)
        return 0
    args = parse_resource_args(what, default="job")
    for arg in args:
        if arg.kind.resource not in (JOBS, CRONJOBS, WORKFLOWS, CRONWORKFLOWS):
            raise CommandError(f"{arg}: only Jobs, CronJobs and Workflows can be suspended")
    verb = f"onejob stop {args[0].kind.singular}/" if suspended else "onejob run --resume "
    api = where.require_server_for(args[0], f"{verb}{args[0].name}")
    namespace = where.namespace_in(api)
    done = "suspended" if suspended else "resumed"
    for arg in args:
        before = get(api, arg.kind, namespace, arg.name)
        if suspended and is_finished(before):
            raise CommandError(f"{arg} has finished", "run it again with onejob rerun")
        # A reason without a value removes that of an earlier suspension.
        annotations: dict[str, str | None] = {REASON_ANNOTATION: reason or None}
        change: dict[str, Any] = {
            "spec": {"suspend": suspended},
            "metadata": {"annotations": annotations},
        }
        if AFTER_HELD_ANNOTATION in before["metadata"].get("annotations", {}):
            if not suspended:
                print(f"{arg} waits for other Jobs (see onejob why {arg})")
                continue
            # It stays suspended when its dependencies are met.
            annotations[AFTER_HELD_ANNOTATION] = None
        elif QUEUED_ANNOTATION in before["metadata"].get("annotations", {}):
            if not suspended:
                print(f"{arg} is queued and starts in turn (see onejob queue)")
                continue
            # Remove the Job from the queue: it is now suspended on the user's request.
            annotations[QUEUED_ANNOTATION] = None
        elif not reason and bool(before["spec"].get("suspend")) == suspended:
            print(f"{arg} is {'already suspended' if suspended else 'not suspended'}")
            continue
        api.send(
            ApiRequest(
                "PATCH",
                path_of(arg.kind, namespace, arg.name),
                {"fieldManager": FIELD_MANAGER},
                body=msgspec.json.encode(change),
                content_type="application/merge-patch+json",
            )
        )
        print(f"{arg} {done}")
    return 0


def _set_runs(where: "Sources", what: tuple[str, ...], *, suspended: bool) -> None:
    """Stop runs, or resume one: a run is not suspended in place, but continued by another."""
    from onejob.cli.kept_runs import find_running

    if not all(word.startswith("run/") for word in what):
        raise CommandError("name either runs or objects of a server", "use two commands")
    names = [word.removeprefix("run/") for word in what]
    if suspended:
        from onejob.cli.run.stopping import stop_run

        for name in names:
            stop_run(*find_running(where.data_dir.runs, name), now=False, wait=True)
        return
    if len(names) != 1:
        raise CommandError("specify one run", "each is resumed by its own onejob run --resume")
    from onejob.cli.commands.rerun import run_again

    run_again(names[0], failed_only=True, settings=(), where=where)
