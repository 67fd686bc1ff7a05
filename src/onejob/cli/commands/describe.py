"""`onejob describe`: one object in full, with its events."""

from typing import TYPE_CHECKING

import click

from onejob.cli.completing import complete_object
from onejob.cli.errors import CommandError
from onejob.cli.options import client_options, runs_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onejob.cli.sources.selection import Sources

_EPILOG = """\b
Examples:
  onejob describe job/pi   # of the server, else of its last run
  onejob describe pod/pi-x2k4p
  onejob describe cronjob/nightly -n batch"""


@click.command(epilog=_EPILOG, short_help="Show one object with its events")
@click.argument("what", nargs=-1, metavar="TYPE/NAME...", shell_complete=complete_object)
@runs_option
@client_options
def command(what: tuple[str, ...], where: "Sources") -> int:
    """Show details and events of objects, like kubectl describe."""
    from onejob.cli.display.describing import describe
    from onejob.cli.reports.job_records import history_lines, progress_lines
    from onejob.cli.reports.why import usage_lines
    from onejob.cli.resource_args import parse_resource_args
    from onejob.cli.sources.base import get, list_all
    from onejob.clock import SystemClock
    from onejob.objects.meta import EVENTS, JOBS, PODS
    from onejob.wire.kinds import BY_RESOURCE

    args = parse_resource_args(what, known=where.kinds())
    if not all(arg.name for arg in args):
        raise CommandError("nothing to describe", "for example job/NAME")
    for number, arg in enumerate(args):
        api, namespace = where.holding(arg)
        document = get(api, arg.kind, namespace, arg.name)
        fields = f"involvedObject.uid={document['metadata']['uid']}"
        events = list_all(api, BY_RESOURCE[EVENTS], namespace, fieldSelector=fields)
        if number:
            print("\n")
        usage = usage_lines(api, document) if arg.kind.resource == PODS else ()
        now = SystemClock().now()
        history: Sequence[str] = ()
        if arg.kind.resource == JOBS:
            history = (*progress_lines(api, document), *history_lines(api, document, now))
        print("\n".join(describe(document, events, now, api.ended, usage, history)))
    return 0
