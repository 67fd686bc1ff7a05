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
@click.argument(
    "what", nargs=-1, metavar="job/NAME | workflow/NAME | run/ID", shell_complete=complete_object
)
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
    from onejob.objects.meta import JOBS, WORKFLOWS

    if len(what) == 1 and what[0].startswith("run/"):
        title, jobs = _reports_of_run(where, what[0].removeprefix("run/"))
    else:
        arg = one_resource_arg(what, default="job")
        if arg.kind.resource == WORKFLOWS:
            title, jobs = str(arg), _reports_of_workflow(where, arg)
        elif arg.kind.resource == JOBS:
            title, jobs = str(arg), [_report(where, arg)]
        else:
            raise CommandError(
                f"no reports of {arg.kind.plural}", "name job/NAME, workflow/NAME or run/ID"
            )
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
    from onejob.cli.sources.base import list_all
    from onejob.objects.meta import JOBS
    from onejob.wire.kinds import BY_RESOURCE

    _, run = find_run(where.data_dir.runs, wanted)
    created: set[tuple[str, str]] = set()
    if any(job.workflow for job in run.jobs):
        # Tasks that were skipped have no Job.
        api = replace(where, run=run.id, only_runs=True).selected_source()
        found = (job["metadata"] for job in list_all(api, BY_RESOURCE[JOBS], ""))
        created = {(metadata["namespace"], metadata["name"]) for metadata in found}
    places = [
        (replace(where, run=run.id, only_runs=True, namespace=job.namespace), job.name)
        for job in run.jobs
        if not job.workflow or (job.namespace, job.name) in created
    ]
    jobs = [_report(place, ResourceArg(BY_RESOURCE[JOBS], name)) for place, name in places]
    return f"run/{run.id}", jobs


def _reports_of_workflow(where: "Sources", arg: "ResourceArg") -> "list[JobReport]":
    from onejob.cli.reports.job_report import report_of_job
    from onejob.cli.sources.base import get, list_all
    from onejob.cli.sources.pods import owners
    from onejob.clock import SystemClock
    from onejob.objects.meta import JOBS
    from onejob.wire.kinds import BY_RESOURCE

    api, namespace = where.holding(arg)
    uid = get(api, arg.kind, namespace, arg.name)["metadata"]["uid"]
    jobs = list_all(api, BY_RESOURCE[JOBS], namespace)
    names = [job["metadata"]["name"] for job in jobs if uid in owners(job)]
    now = SystemClock().now()
    return [report_of_job(where, api, namespace, name, now) for name in names]


def _report(where: "Sources", arg: "ResourceArg") -> "JobReport":
    from onejob.cli.reports.job_report import report_of_job
    from onejob.clock import SystemClock

    api, namespace = where.holding(arg)
    return report_of_job(where, api, namespace, arg.name, SystemClock().now())
