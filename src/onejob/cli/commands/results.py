"""`onejob results`: parameters, outcome and result of each index."""

import sys
from typing import TYPE_CHECKING

import click

from onejob.cli.completing import complete_object
from onejob.cli.errors import CommandError
from onejob.cli.options import client_options, runs_option

if TYPE_CHECKING:
    from onejob.cli.resource_args import ResourceArg
    from onejob.cli.sources.selection import Sources

_EPILOG = """\b
Examples:
  onejob results job/train         # as a table
  onejob results train --failed    # what run --resume would run again
  onejob results train -o csv > results.csv
  onejob results train -o json | jq '.[] | select(.exitCode != 0)'
  onejob results train -o joblog   # in the format of GNU parallel

The result of a program is the content of the file $ONEJOB_RESULT (set by onejob run --params), or
its container's termination message, up to 4096 bytes. The keys of JSON objects become columns.

MEMORY is the peak of the largest process of a container, CPU its seconds of CPU time. NotRun: the
run ended before a Pod was created for the index."""


@click.command(epilog=_EPILOG, short_help="Show the result of each index of a Job")
@click.argument(
    "what", nargs=-1, metavar="job/NAME | workflow/NAME", shell_complete=complete_object
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "csv", "json", "joblog"]),
    default="table",
    help="Output format.",
)
@click.option("--failed", is_flag=True, help="Show only indexes that did not succeed.")
@click.option("--only", is_flag=True, help="Show only this Job, without the Jobs that it repeats.")
@runs_option
@client_options
def command(what: tuple[str, ...], output: str, failed: bool, only: bool, where: "Sources") -> int:
    """Show parameters, exit code, time and result of each index of a Job.

    For a Job that repeats failed indexes (rerun --failed-only, run --resume), results of the other
    indexes are taken from the earlier Jobs. Of a Workflow, show the result values of its tasks.
    """
    from onejob.cli.display.result_formats import as_joblog, as_json, as_table
    from onejob.cli.display.tables import render_table
    from onejob.cli.display.terminal import terminal_of
    from onejob.cli.reports.lineage import results_of_job, results_of_lineage
    from onejob.cli.resource_args import one_resource_arg
    from onejob.cli.sources.base import get
    from onejob.diagnosis.result_table import as_csv
    from onejob.objects.meta import JOBS, WORKFLOWS

    arg = one_resource_arg(what, default="job")
    if arg.kind.resource == WORKFLOWS:
        return _results_of_workflow(where, arg, output)
    if arg.kind.resource != JOBS:
        raise CommandError(f"{arg} has no results", "name job/NAME or workflow/NAME")
    api, namespace = where.holding(arg)
    job = get(api, arg.kind, namespace, arg.name)
    results = results_of_job(api, job) if only else results_of_lineage(where, api, job)
    if failed:
        results = [result for result in results if result.state != "Succeeded"]
    match output:
        case "csv":
            sys.stdout.write(as_csv(results))
        case "json":
            sys.stdout.write(as_json(results))
        case "joblog":
            sys.stdout.write(as_joblog(results))
        case _:
            headers, rows = as_table(results)
            for line in render_table(headers, rows, terminal_of().width):
                print(line)
    return 0


def _results_of_workflow(where: "Sources", arg: "ResourceArg", output: str) -> int:
    from onejob.cli.display.tables import render_table
    from onejob.cli.display.terminal import terminal_of
    from onejob.cli.sources.base import get

    api, namespace = where.holding(arg)
    status = get(api, arg.kind, namespace, arg.name).get("status", {})
    found = {task["name"]: task.get("results", {}) for task in status.get("tasks", ())}
    rows = [[task, name, text] for task, named in found.items() for name, text in named.items()]
    match output:
        case "json":
            import msgspec

            kept = {task: named for task, named in found.items() if named}
            print(msgspec.json.format(msgspec.json.encode(kept), indent=2).decode())
        case "csv":
            import csv

            writer = csv.writer(sys.stdout, lineterminator="\n")
            writer.writerows([["task", "result", "value"], *rows])
        case "table":
            for line in render_table(["TASK", "RESULT", "VALUE"], rows, terminal_of().width):
                print(line)
        case _:
            raise CommandError(f"-o {output} supports only Jobs", "use table, csv or json")
    return 0
