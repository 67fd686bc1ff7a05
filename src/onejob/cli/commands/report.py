"""`onejob report`: a run or a Job as one HTML file."""

from typing import TYPE_CHECKING

import click

from onejob.cli.completing import complete_object
from onejob.cli.errors import CommandError
from onejob.cli.options import client_options, runs_option

if TYPE_CHECKING:
    from onejob.cli.reports.job_report import JobReport
    from onejob.cli.resource_args import ResourceArg
    from onejob.cli.sources.selection import Sources

_EPILOG = """\b
Examples:
  onejob report run/20260131-120000 -o report.html
  onejob report job/train -o train.html
  onejob report train > train.html"""


@click.command(epilog=_EPILOG, short_help="Write a report as HTML")
@click.argument("what", nargs=-1, metavar="job/NAME | run/ID", shell_complete=complete_object)
@click.option(
    "-o", "--output", default="-", metavar="FILE", help="File to write. [default: stdout]"
)
@runs_option
@client_options
def command(what: tuple[str, ...], output: str, where: "Sources") -> int:
    """Write timeline, results, slowest Pods and failures of a run or Job as one HTML file.

    The file contains neither scripts nor links, but the last log lines of failed Pods.
    """
    from onejob.cli.reports.html_report import html_report
    from onejob.cli.resource_args import one_resource_arg
    from onejob.clock import SystemClock
    from onejob.objects.meta import JOBS

    if len(what) == 1 and what[0].startswith("run/"):
        title, jobs = _reports_of_run(where, what[0].removeprefix("run/"))
    else:
        arg = one_resource_arg(what, default="job")
        if arg.kind.resource != JOBS:
            raise CommandError(f"no reports of {arg.kind.plural}", "name job/NAME or run/ID")
        title, jobs = str(arg), [_report(where, arg)]
    text = html_report(title, jobs, SystemClock().now())
    if output == "-":
        print(text, end="")
        return 0
    with open(output, "w") as file:
        file.write(text)
    print(f"{output} written")
    return 0


def _reports_of_run(where: "Sources", wanted: str) -> "tuple[str, list[JobReport]]":
    from msgspec.structs import replace

    from onejob.cli.kept_runs import find_run
    from onejob.cli.resource_args import ResourceArg
    from onejob.objects.meta import JOBS
    from onejob.wire.kinds import BY_RESOURCE

    _, run = find_run(where.data_dir.runs, wanted)
    places = [
        (replace(where, run=run.id, only_runs=True, namespace=job.namespace), job.name)
        for job in run.jobs
    ]
    jobs = [_report(place, ResourceArg(BY_RESOURCE[JOBS], name)) for place, name in places]
    return f"run/{run.id}", jobs


def _report(where: "Sources", arg: "ResourceArg") -> "JobReport":
    from onejob.cli.reports.job_report import report_of_job
    from onejob.clock import SystemClock

    api, namespace = where.holding(arg)
    return report_of_job(where, api, namespace, arg.name, SystemClock().now())
