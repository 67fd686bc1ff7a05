"""`onejob backup`: online backup of a server's state into one file."""

from pathlib import Path

import click

from onejob.cli.options import data_dir_option

_EPILOG = """\b
Examples:
  onejob backup state.tar
  onejob backup --replace /mnt/backups/onejob.tar   # from a CronJob or timer

The backup contains all stored data, including keys and tokens: protect it like the server's
directory. Logs of Pods are not included. `onejob restore` restores it."""


@click.command(epilog=_EPILOG, short_help="Back up the state of a server to a file")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--replace", is_flag=True, help="Replace the file after the new backup is complete.")
@data_dir_option
def command(file: Path, replace: bool, data_dir: str | None) -> None:
    """Write a consistent snapshot of a server's state to a file. The server keeps running."""
    from onejob.cli.backups import back_up
    from onejob.cli.places import data_dir as find_data_dir

    place = find_data_dir(data_dir)
    place.require_trusted()
    manifest = back_up(place.server, file.absolute(), replace=replace)
    size = file.stat().st_size
    print(f"{file}: revision {manifest.revision}, {size / 1e6:.1f} MB")
