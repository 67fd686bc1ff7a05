"""`onejob backup`: online backup of a server's state into one file."""

from pathlib import Path

import click

from onejob.cli.options import data_dir_option

_EPILOG = """\b
Examples:
  onejob backup state.tar
  onejob backup --replace /mnt/backups/onejob.tar   # for a CronJob or a timer

It has everything that is stored, keys and tokens included, so keep it as private as the server's
folder. Logs of Pods are not in it. `onejob restore` makes a server of it again."""


@click.command(epilog=_EPILOG, short_help="Copy the state of a server into a file")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--replace", is_flag=True, help="Replace the file, once the new one is complete.")
@data_dir_option
def command(file: Path, replace: bool, data_dir: str | None) -> None:
    """Copy the state of a server, as it is at one moment, into a file. The server goes on."""
    from onejob.cli.backups import back_up
    from onejob.cli.places import data_dir as find_data_dir

    place = find_data_dir(data_dir)
    place.require_trusted()
    manifest = back_up(place.server, file.absolute(), replace=replace)
    size = file.stat().st_size
    print(f"{file}: revision {manifest.revision}, {size / 1e6:.1f} MB")
