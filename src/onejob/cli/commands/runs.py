"""`onejob runs`: list of the runs kept by `onejob run`."""

from typing import TYPE_CHECKING, Any

import click

from onejob.cli.options import data_dir_option, output_option

if TYPE_CHECKING:
    from datetime import datetime

    from onejob.cli.kept_runs import Run

_EPILOG = """\b
Examples:
  onejob runs                             # newest first
  onejob runs -o json | jq '.[] | select(.state == "Failed")'
  onejob get pods --run 20260131-120000   # of one run
  onejob delete run/20260131-120000"""


@click.command(epilog=_EPILOG, short_help="List kept runs")
@output_option("json", "name")
@data_dir_option
def command(output: str | None, data_dir: str | None) -> int:
    """List kept runs, newest first, with their Jobs, state and exit code."""
    import sys

    import msgspec

    from onejob.cli.display.tables import render_table
    from onejob.cli.display.terminal import terminal_of
    from onejob.cli.kept_runs import kept_runs, run_state
    from onejob.cli.places import data_dir as find_data_dir
    from onejob.clock import SystemClock

    place = find_data_dir(data_dir)
    place.require_trusted()
    found = [_run_document(*run_state(folder)) for folder, _ in kept_runs(place.runs)]
    if output == "json":
        print(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
        return 0
    if output == "name":
        for run in found:
            print(f"run/{run['id']}")
        return 0
    if not found:
        print("No kept runs (start one with onejob run).", file=sys.stderr)
        return 0
    now = SystemClock().now()
    rows = [_row(run, now) for run in found]
    headers = ("ID", "AGE", "JOBS", "STATE", "EXIT CODE")
    for line in render_table(headers, rows, terminal_of().width):
        print(line)
    return 0


def _run_document(state: str, run: "Run") -> dict[str, Any]:
    return {
        "id": run.id,
        "startedAt": run.started_at,
        "finishedAt": run.finished_at,
        "state": state,
        "exitCode": run.exit_code,
        "jobs": [{"namespace": job.namespace, "name": job.name} for job in run.jobs],
        "arguments": run.arguments,
    }


def _row(run: dict[str, Any], now: "datetime") -> list[str]:
    from onejob.api.kinds.printing import human_duration

    code = run["exitCode"]
    return [
        run["id"],
        human_duration((now - run["startedAt"]).total_seconds()),
        ",".join(job["name"] for job in run["jobs"]),
        run["state"],
        "" if code is None else str(code),
    ]
