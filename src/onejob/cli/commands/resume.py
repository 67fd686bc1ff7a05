"""`onejob resume`: the counterpart of `onejob suspend`."""

from typing import TYPE_CHECKING

import click

from onejob.cli.commands.suspend import set_suspend
from onejob.cli.completing import complete_object
from onejob.cli.options import client_options

if TYPE_CHECKING:
    from onejob.cli.sources.selection import Sources

_EPILOG = """\b
Examples:
  onejob resume job/pi   # its deadline is reset
  onejob resume cronjob/nightly
  onejob resume run/20260131-120000   # same as onejob run --resume"""


@click.command(epilog=_EPILOG, short_help="Resume suspended Jobs or CronJobs")
@click.argument(
    "what", nargs=-1, metavar="job/NAME | cronjob/NAME ...", shell_complete=complete_object
)
@client_options
def command(what: tuple[str, ...], where: "Sources") -> int:
    """Resume suspended Jobs or CronJobs."""
    return set_suspend(where, what, suspended=False)
