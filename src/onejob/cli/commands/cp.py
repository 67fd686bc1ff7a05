"""`onejob cp`: copy the outputs of a Job."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from onejob.cli.completing import complete_object
from onejob.cli.errors import EXIT_FAILED, CommandError
from onejob.cli.options import client_options, runs_option

if TYPE_CHECKING:
    from onejob.cli.sources.selection import Sources

_EPILOG = """\b
Examples:
  onejob cp job/train: results          # all outputs, a folder per index
  onejob cp job/train:model.bin .       # one file or folder of them
  onejob cp job/train:logs . --index 3  # of one index
  onejob cp --deleted job/train: old    # of a deleted Job

Containers write outputs to the directory $ONEJOB_OUTPUT."""


@click.command(epilog=_EPILOG, short_help="Copy the outputs of a Job")
@click.argument("source", metavar="job/NAME:[PATH]", shell_complete=complete_object)
@click.argument("destination", metavar="DIRECTORY", type=click.Path(path_type=Path))
@click.option("--index", type=click.IntRange(0), metavar="N", help="Copy only this index.")
@click.option(
    "--deleted", is_flag=True, help="Copy kept outputs of a deleted Job from the data directory."
)
@runs_option
@client_options
def command(
    source: str, destination: Path, index: int | None, deleted: bool, where: "Sources"
) -> int:
    """Copy files that the containers of a Job have written, from a server or from a kept run."""
    from onejob.cli.reports.extracting import extract
    from onejob.cli.resource_args import one_resource_arg
    from onejob.cli.sources.base import ApiRequest, path_of
    from onejob.objects.meta import JOBS
    from onejob.planning.counts import counted

    what, colon, part = source.partition(":")
    if not colon:
        raise CommandError(f"{source}: expected job/NAME:PATH", f"for all files: {source}:")
    arg = one_resource_arg((what,), default="job")
    if arg.kind.resource != JOBS:
        raise CommandError(f"{arg} has no outputs of its own", "specify a Job")
    if deleted:
        from onejob.cli.reports.kept_outputs import deleted_outputs

        pieces = deleted_outputs(where, arg.name, part, index)
    else:
        api, namespace = where.holding(arg)
        query = {"path": part, "index": "" if index is None else str(index)}
        path = path_of(arg.kind, namespace, arg.name, "outputs")
        pieces = api.stream(ApiRequest("GET", path, query, accept="*/*"))
    files, size = extract(pieces, destination)
    if not files:
        raise CommandError(f"{arg} has no files there", exit_code=EXIT_FAILED)
    print(f"{counted(files, 'file')} ({counted(size, 'byte')}) copied to {destination}")
    return 0
