"""`onejob restore`: a server's data dir from a file written by `onejob backup`."""

from pathlib import Path

import click

from onejob.cli.options import data_dir_option

_EPILOG = """\b
Examples:
  onejob restore state.tar             # if there is no server yet
  onejob restore --replace state.tar   # keeps the old state as a copy

Pods that were running at the time of the backup are reported as disrupted when the server starts;
their Jobs continue according to their policies."""


@click.command(epilog=_EPILOG, short_help="Restore a server from a backup")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--replace", is_flag=True, help="Replace an existing server.")
@data_dir_option
def command(file: Path, replace: bool, data_dir: str | None) -> None:
    """Restore the state of a server, which must not be running, from a backup."""
    from onejob.cli.backups import restore
    from onejob.cli.places import data_dir as find_data_dir

    place = find_data_dir(data_dir)
    place.prepare()
    manifest, before = restore(file, place.server, replace=replace)
    print(f"restored revision {manifest.revision} to {place.server}; start it with onejob serve")
    if before is not None:
        print(f"the previous state is in {before}")
