"""`onejob restore`: a server's data dir from a file written by `onejob backup`."""

from pathlib import Path

import click

from onejob.cli.options import data_dir_option

_EPILOG = """\b
Examples:
  onejob restore state.tar             # where there is no server yet
  onejob restore --replace state.tar   # what was there is kept beside it

Pods that ran when the backup was made are reported as disrupted once the server starts; their Jobs
go on as their policies say."""


@click.command(epilog=_EPILOG, short_help="Make a server of a backup")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--replace", is_flag=True, help="Take the place of a server that is there already.")
@data_dir_option
def command(file: Path, replace: bool, data_dir: str | None) -> None:
    """Make a backup the state of a server, which must not run."""
    from onejob.cli.backups import restore
    from onejob.cli.places import data_dir as find_data_dir

    place = find_data_dir(data_dir)
    place.prepare()
    manifest, before = restore(file, place.server, replace=replace)
    print(f"restored revision {manifest.revision} to {place.server}; onejob serve starts it")
    if before is not None:
        print(f"what was there is in {before}")
