"""`onejob wait`: wait until a Job ends, or until a condition holds."""

from typing import TYPE_CHECKING

import click

from onejob.cli.completing import complete_object
from onejob.cli.display.durations import duration
from onejob.cli.errors import EXIT_FAILED, EXIT_OK, CommandError
from onejob.cli.options import client_options, runs_option
from onejob.diagnosis.durations import short_seconds

if TYPE_CHECKING:
    from onejob.cli.resource_args import ResourceArg
    from onejob.cli.sources.selection import Sources

_EPILOG = """\b
Examples:
  onejob wait job/pi                      # exits 0 if Complete, 1 if Failed
  onejob wait job/a job/b --timeout 10m   # both
  onejob wait jobs -l app=etl             # all that have the label now
  onejob wait job/pi --for condition=suspended
  onejob wait job/pi --for delete"""


@click.command(epilog=_EPILOG, short_help="Wait for a Job to finish")
@click.argument("what", nargs=-1, metavar="job/NAME...", shell_complete=complete_object)
@click.option(
    "--for",
    "condition",
    default="",
    metavar="CONDITION",
    help="condition=NAME[=VALUE] or delete. [default: Complete or Failed]",
)
@click.option("-l", "--selector", default="", metavar="LABELS", help="By labels.")
@click.option("--timeout", type=duration, metavar="DURATION", help="Give up after this time.")
@runs_option
@client_options
def command(
    what: tuple[str, ...], condition: str, selector: str, timeout: float | None, where: "Sources"
) -> int:
    """Wait until each object meets a condition; without --for, until each Job has finished. The
    exit code is 0 if all are Complete and 1 if one Failed."""
    from onejob.cli.resource_args import parse_resource_args
    from onejob.cli.sources.awaiting import WaitCondition, await_object
    from onejob.clock import SystemClock

    wanted = WaitCondition.parse(condition)
    if selector:
        args = _selected(where, what, selector)
    else:
        args = parse_resource_args(what, default="job", known=where.kinds())
    clock = SystemClock()
    deadline = None if timeout is None else clock.monotonic() + timeout
    exit_code = EXIT_OK
    for arg in args:
        verdict = await_object(where, arg, wanted, clock, deadline)
        if verdict is None:
            assert timeout is not None
            raise CommandError(
                f"{arg} is not {wanted} after {short_seconds(timeout)}",
                f"see onejob why {arg.kind.singular}/{arg.name}",
                exit_code=EXIT_FAILED,
            )
        print(f"{arg} {verdict.text}")
        if not verdict.good:
            exit_code = EXIT_FAILED
    return exit_code


def _selected(where: "Sources", what: tuple[str, ...], selector: str) -> "list[ResourceArg]":
    """Return the objects that match now; later ones are not waited for, as in kubectl."""
    from onejob.cli.reports.listing import Query, find_documents
    from onejob.cli.resource_args import ResourceArg, parse_resource_args

    kinds = parse_resource_args(what or ("jobs",), known=where.kinds())
    if any(arg.name for arg in kinds):
        raise CommandError("-l requires a kind, not names", "for example jobs")
    found = [
        ResourceArg(arg.kind, document["metadata"]["name"])
        for arg in kinds
        for document in find_documents(where, [arg], Query(labels=selector))
    ]
    if not found:
        raise CommandError("no matching resources found", exit_code=EXIT_FAILED)
    return found
