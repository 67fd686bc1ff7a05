"""`onejob why`: cause, evidence and next steps for an object's state, in plain words."""

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
  onejob why job/pi
  onejob why pi -n batch
  onejob why pod/pi-x2k4p          # why it waits, failed or restarts
  onejob why cronjob/nightly       # why it started no Job; next time
  onejob why workflow/etl          # why tasks wait, failed or were skipped
  onejob why run/20260131-120000   # the Jobs of a kept run"""


@click.command(epilog=_EPILOG, short_help="Explain the state of an object")
@click.argument(
    "what",
    nargs=-1,
    metavar="job/NAME | pod/NAME | cronjob/NAME | workflow/NAME | run/ID",
    shell_complete=complete_object,
)
@runs_option
@client_options
def command(what: tuple[str, ...], where: "Sources") -> int:
    """Explain the state of a Job, Pod, CronJob or Workflow, and its next step.

    The explanation is computed by the code that controls the object.
    """
    from onejob.cli.resource_args import one_resource_arg

    if len(what) == 1 and what[0].startswith("run/"):
        return _explain_run(where, what[0].removeprefix("run/"))
    _explain_object(where, one_resource_arg(what, default="job"))
    return 0


def _explain_run(where: "Sources", wanted: str) -> int:
    from msgspec.structs import replace

    from onejob.cli.kept_runs import find_run, run_state
    from onejob.cli.resource_args import ResourceArg
    from onejob.objects.meta import JOBS, WORKFLOWS
    from onejob.wire.kinds import BY_RESOURCE

    folder, _ = find_run(where.data_dir.runs, wanted)
    state, run = run_state(folder)
    code = "" if run.exit_code is None else f", exit code {run.exit_code}"
    by = f", stopped by {run.stopped_by}" if run.stopped_by else ""
    print(f"run/{run.id} is {state}{by}{code}.")
    # The Jobs of a workflow are explained with it; some may never have been created.
    found = dict.fromkeys(
        (WORKFLOWS, job.namespace, job.workflow)
        if job.workflow
        else (JOBS, job.namespace, job.name)
        for job in run.jobs
    )
    for resource, namespace, name in found:
        print()
        chosen = replace(where, run=run.id, only_runs=True, namespace=namespace)
        _explain_object(chosen, ResourceArg(BY_RESOURCE[resource], name))
    return 0


def _explain_object(where: "Sources", arg: "ResourceArg") -> None:
    from onejob.cli.reports.why import EXPLAINED, why_lines

    if arg.kind.resource not in EXPLAINED:
        raise CommandError(
            f"onejob why supports Jobs, Pods, CronJobs, Workflows and runs, not {arg.kind.plural}",
            "name job/NAME",
        )
    from onejob.cli.sources.base import get
    from onejob.clock import SystemClock

    api, namespace = where.holding(arg)
    document = get(api, arg.kind, namespace, arg.name)
    for line in why_lines(api, arg.kind.resource, document, SystemClock().now()):
        print(line)
