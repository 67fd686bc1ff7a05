"""`onejob runs`: list of the runs kept by `onejob run`."""

import click

from onejob.cli.options import data_dir_option, output_option

_EPILOG = """\b
Examples:
  onejob runs                             # newest first
  onejob get runs,jobs                    # with the Jobs of runs and server
  onejob runs -o json | jq '.[] | select(.state == "Failed")'
  onejob get pods --run 20260131-120000   # of one run
  onejob delete run/20260131-120000"""


@click.command(epilog=_EPILOG, short_help="List kept runs")
@output_option("json", "name")
@data_dir_option
def command(output: str | None, data_dir: str | None) -> int:
    """List kept runs, newest first, with their Jobs, state and exit code."""
    from onejob.cli.places import data_dir as find_data_dir
    from onejob.cli.reports.runs import print_runs

    place = find_data_dir(data_dir)
    place.require_trusted()
    print_runs(place.runs, output=output)
    return 0
