"""`onejob rerun`: repeat a finished Job, or only its failed indexes."""

import os
import sys
from typing import TYPE_CHECKING, Any, NoReturn

import click

from onejob.cli.completing import complete_object
from onejob.cli.errors import CommandError
from onejob.cli.options import client_options, output_option

if TYPE_CHECKING:
    from onejob.cli.resource_args import ResourceArg
    from onejob.cli.sources.base import Api
    from onejob.cli.sources.selection import Sources

_EPILOG = """\b
Examples:
  onejob rerun job/train                 # run it again as train-rerun-1
  onejob rerun job/train --failed-only   # only failed or missing indexes
  onejob rerun job/train --from 17       # only index 17 and above
  onejob rerun job/train --set lr=0.01   # with another parameter or variable
  onejob rerun job/train --dry-run=client -o yaml
  onejob rerun workflow/etl --failed-only   # what did not complete
  onejob rerun workflow/etl --from clean    # it and what follows
  onejob rerun run/20260131-120000   # same as onejob run --again"""


@click.command(epilog=_EPILOG, short_help="Run a finished Job or Workflow again")
@click.argument(
    "what", nargs=-1, metavar="job/NAME | workflow/NAME | run/ID", shell_complete=complete_object
)
@click.option(
    "--failed-only", is_flag=True, help="Run only the indexes or tasks that did not succeed."
)
@click.option(
    "--from",
    "from_place",
    default="",
    metavar="TASK|INDEX",
    help="Run only this task of a workflow, and those that depend on it; or, of a Job, "
    "only this index and those above.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="Change a parameter or environment variable.",
)
@click.option("--dry-run", type=click.Choice(["client"]), help="Print the Job without creating it.")
@output_option("json", "yaml", "name")
@client_options
def command(
    what: tuple[str, ...],
    failed_only: bool,
    from_place: str,
    settings: tuple[str, ...],
    dry_run: str | None,
    output: str | None,
    where: "Sources",
) -> int:
    """Create a copy of a finished Job or Workflow. The label onejob.dev/lineage of a Job has the
    name of the first one; in a copy of a Workflow, tasks that do not run keep ends and results.

    A kept run is run again on this machine, as with onejob run --again or --resume; one with --on
    on its cluster.
    """
    from onejob.cli.resource_args import ResourceArg, one_resource_arg
    from onejob.objects.meta import JOBS, WORKFLOWS
    from onejob.wire.kinds import BY_RESOURCE

    if len(what) == 1 and what[0].startswith("run/"):
        elsewhere = _run_elsewhere(where, what[0].removeprefix("run/"))
        if elsewhere is not None:
            if from_place:
                raise CommandError("--from does not support a run with --on", "remove it")
            where, jobs = elsewhere
            for namespace, name in jobs:
                api = where.selected_source()
                _rerun_job(
                    api,
                    namespace,
                    ResourceArg(BY_RESOURCE[JOBS], name),
                    failed_only=failed_only,
                    settings=settings,
                    dry_run=dry_run,
                    output=output,
                )
            return 0
        if dry_run or output:
            raise CommandError(
                "--dry-run and -o support only Jobs of a server", "see onejob run --help"
            )
        run_again(
            what[0].removeprefix("run/"),
            failed_only=failed_only,
            settings=settings,
            where=where,
            from_task=from_place,
        )
    arg = one_resource_arg(what, default="job")
    if arg.kind.resource == WORKFLOWS:
        if settings:
            raise CommandError("--set does not support workflows", "change the manifest instead")
        return _rerun_workflow(where, arg, failed_only, from_place, dry_run, output)
    if arg.kind.resource != JOBS:
        raise CommandError(f"{arg} is not a Job", "name job/NAME or workflow/NAME")
    resume = f"onejob run --resume {arg.name} runs what did not succeed"
    api = where.require_server_for(arg, resume)
    return _rerun_job(
        api,
        where.namespace_in(api),
        arg,
        failed_only=failed_only,
        settings=settings,
        dry_run=dry_run,
        output=output,
        from_index=_first_index(from_place, failed_only),
    )


def _first_index(text: str, failed_only: bool) -> int | None:
    """Return the index of `--from`; None without one. Raises CommandError."""
    from onejob.planning.job.indexes import read_index

    if not text:
        return None
    if failed_only:
        raise CommandError("specify either --failed-only or --from")
    index = read_index(text)
    if index is None:
        raise CommandError(f"--from {text}: expected an index such as 0 or 17")
    return index


def _run_elsewhere(where: "Sources", wanted: str) -> "tuple[Sources, list[tuple[str, str]]] | None":
    """Return access to a run with --on, and the places of its Jobs; None for a run from here."""
    from msgspec.structs import replace

    from onejob.cli.kept_runs import find_run

    _, run = find_run(where.data_dir.runs, wanted)
    if run.on is None:
        return None
    jobs = [(job.namespace, job.name) for job in run.jobs]
    return replace(where, run=run.id, only_runs=True), jobs


def _rerun_job(
    api: "Api",
    namespace: str,
    arg: "ResourceArg",
    *,
    failed_only: bool,
    settings: tuple[str, ...],
    dry_run: str | None,
    output: str | None,
    from_index: int | None = None,
) -> int:
    from onejob.cli.display.output import print_documents, resource_name
    from onejob.cli.sources.base import get, list_all
    from onejob.cli.sources.params import params_of_job
    from onejob.cli.sources.set_options import parse_settings
    from onejob.objects.job import is_finished
    from onejob.planning.job.rerun import rerun

    job = get(api, arg.kind, namespace, arg.name)
    taken = {item["metadata"]["name"] for item in list_all(api, arg.kind, namespace)}
    documents = rerun(
        job,
        params_of_job(api, job),
        taken=taken,
        failed_only=failed_only,
        from_index=from_index,
        settings=parse_settings(settings),
    )
    if not documents:
        print(f"{arg}: nothing to rerun")
        return 0
    if dry_run is None:
        documents = [_create_rerun(api, document, namespace) for document in documents]
    if not is_finished(job):
        partly = failed_only or from_index is not None
        does = "also runs its remaining indexes" if partly else "runs concurrently"
        print(
            f"note: {arg} has not finished: {resource_name(documents[-1])} {does}",
            file=sys.stderr,
        )
    if output:
        print_documents(documents, output)
        return 0
    for document in documents:
        print(f"{resource_name(document)} created{' (client dry run)' if dry_run else ''}")
    return 0


def _rerun_workflow(
    where: "Sources",
    arg: "ResourceArg",
    failed_only: bool,
    from_task: str,
    dry_run: str | None,
    output: str | None,
) -> int:
    from onejob.cli.display.output import print_documents, resource_name
    from onejob.cli.sources.base import get, list_all
    from onejob.planning.workflow.rerun import rerun_names, rerun_workflow

    if where.server() is None and not (dry_run or output):
        name = f"workflow/{arg.name}"
        run_again(name, failed_only=failed_only, settings=(), where=where, from_task=from_task)
    if failed_only and from_task:
        raise CommandError("specify either --failed-only or --from")
    api = where.require_server_for(arg, f"onejob run --resume {arg.name} runs what did not succeed")
    namespace = where.namespace_in(api)
    workflow = get(api, arg.kind, namespace, arg.name)
    taken = {item["metadata"]["name"] for item in list_all(api, arg.kind, namespace)}
    document = rerun_workflow(
        workflow,
        name=next(name for name in rerun_names(workflow) if name not in taken),
        from_task=from_task,
        failed_only=failed_only,
    )
    if failed_only and len(document["spec"].get("given", ())) == len(workflow["spec"]["tasks"]):
        print(f"{arg}: nothing to rerun")
        return 0
    if dry_run is None:
        document = _create_rerun(api, document, namespace)
    if output:
        print_documents([document], output)
    else:
        print(f"{resource_name(document)} created{' (client dry run)' if dry_run else ''}")
    return 0


def run_again(
    run: str,
    *,
    failed_only: bool,
    settings: tuple[str, ...],
    where: "Sources",
    from_task: str = "",
) -> NoReturn:
    """Replace this process by `onejob run`, which needs terminal, signals and folder to itself."""
    if not run:
        raise CommandError("run/: missing ID", "onejob runs lists them")
    if failed_only and from_task:
        raise CommandError("specify either --failed-only or --from")
    words = ["run", "--resume" if failed_only else "--again", run]
    words += ["--from", from_task] if from_task else []
    words += [word for setting in settings for word in ("--set", setting)]
    words += ["--data-dir", str(where.data_dir.path)]
    os.execv(sys.executable, [sys.executable, "-m", "onejob", *words])


def _create_rerun(api: "Api", document: dict[str, Any], namespace: str) -> dict[str, Any]:
    from onejob.cli.manifests.loading import manifest_from_document
    from onejob.cli.manifests.sending import create

    return create(api, manifest_from_document(document), namespace)
