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
  onejob suspend cronjob/nightly   # no new Jobs; running ones continue"""


@click.command(epilog=_EPILOG, short_help="Suspend Jobs or CronJobs")
@click.argument(
    "what", nargs=-1, metavar="job/NAME | cronjob/NAME ...", shell_complete=complete_object
)
@client_options
def command(what: tuple[str, ...], where: "Sources") -> int:
    """Suspend Jobs (their Pods are stopped) or CronJobs (no new Jobs are started)."""
    return set_suspend(where, what, suspended=True)


def set_suspend(where: "Sources", what: tuple[str, ...], *, suspended: bool) -> int:
    import msgspec

    from onejob.cli.resource_args import parse_resource_args
    from onejob.cli.sources.base import FIELD_MANAGER, ApiRequest, get, path_of
    from onejob.objects.job import is_finished
    from onejob.objects.meta import CRONJOBS, JOBS
    from onejob.planning.names import AFTER_HELD_ANNOTATION
    from onejob.planning.queue.membership import QUEUED_ANNOTATION

    args = parse_resource_args(what, default="job")
    for arg in args:
        if arg.kind.resource not in (JOBS, CRONJOBS):
            raise CommandError(f"{arg}: only Jobs and CronJobs can be suspended")
    api = where.require_server()
    namespace = where.namespace_in(api)
    done = "suspended" if suspended else "resumed"
    for arg in args:
        before = get(api, arg.kind, namespace, arg.name)
        if suspended and is_finished(before):
            raise CommandError(f"{arg} has finished", "run it again with onejob rerun")
        change: dict[str, Any] = {"spec": {"suspend": suspended}}
        if AFTER_HELD_ANNOTATION in before["metadata"].get("annotations", {}):
            if not suspended:
                print(f"{arg} waits for other Jobs (see onejob why {arg})")
                continue
            # It stays suspended when its dependencies are met.
            change["metadata"] = {"annotations": {AFTER_HELD_ANNOTATION: None}}
        elif QUEUED_ANNOTATION in before["metadata"].get("annotations", {}):
            if not suspended:
                print(f"{arg} is queued and starts in turn (see onejob queue)")
                continue
            # Remove the Job from the queue: it is now suspended on the user's request.
            change["metadata"] = {"annotations": {QUEUED_ANNOTATION: None}}
        elif bool(before["spec"].get("suspend")) == suspended:
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
