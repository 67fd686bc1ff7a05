"""`onejob rerun`: repeat a finished Job, or only its failed indexes."""

import os
import sys
from typing import TYPE_CHECKING, Any, NoReturn

import click

from onejob.cli.completing import complete_object
from onejob.cli.errors import CommandError
from onejob.cli.options import client_options, output_option

if TYPE_CHECKING:
    from onejob.cli.sources.base import Api
    from onejob.cli.sources.selection import Sources

_EPILOG = """\b
Examples:
  onejob rerun job/train                 # all of it, as train-rerun-1
  onejob rerun job/train --failed-only   # what did not succeed
  onejob rerun job/train --set lr=0.01   # another parameter or variable
  onejob rerun job/train --dry-run=client -o yaml
  onejob rerun run/20260131-120000   # a kept run, here: onejob run --again"""


@click.command(epilog=_EPILOG, short_help="Run a finished Job once more")
@click.argument("what", nargs=-1, metavar="job/NAME | run/ID", shell_complete=complete_object)
@click.option("--failed-only", is_flag=True, help="Only what did not succeed.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="A parameter, or a variable of its containers, with another value.",
)
@click.option("--dry-run", type=click.Choice(["client"]), help="Print only; nothing is sent.")
@output_option("json", "yaml", "name")
@client_options
def command(
    what: tuple[str, ...],
    failed_only: bool,
    settings: tuple[str, ...],
    dry_run: str | None,
    output: str | None,
    where: "Sources",
) -> int:
    """Create a Job like one that has run. Its label onejob.dev/lineage names the first of them.

    A kept run is run once more right here, as onejob run --again and --resume do it.
    """
    from onejob.cli.display.output import print_documents, resource_name
    from onejob.cli.resource_args import one_resource_arg
    from onejob.cli.sources.base import get, list_all
    from onejob.cli.sources.params import params_of_job
    from onejob.cli.sources.set_options import parse_settings
    from onejob.objects.job import is_finished
    from onejob.objects.meta import JOBS
    from onejob.planning.job.rerun import rerun

    if len(what) == 1 and what[0].startswith("run/"):
        if dry_run or output:
            raise CommandError("--dry-run and -o are for Jobs of a server", "see onejob run --help")
        _run_again(what[0].removeprefix("run/"), failed_only, settings, where)
    arg = one_resource_arg(what, default="job")
    if arg.kind.resource != JOBS:
        raise CommandError(f"{arg} is no Job", "name job/NAME")
    resume = f"onejob run --resume {arg.name} goes on with what did not succeed"
    api = where.require_server_for(arg, resume)
    namespace = where.namespace_in(api)
    job = get(api, arg.kind, namespace, arg.name)
    taken = {item["metadata"]["name"] for item in list_all(api, arg.kind, namespace)}
    documents = rerun(
        job,
        params_of_job(api, job),
        taken=taken,
        failed_only=failed_only,
        settings=parse_settings(settings),
    )
    if not documents:
        print(f"{arg}: nothing is left to do")
        return 0
    if dry_run is None:
        documents = [_created(api, document, namespace) for document in documents]
    if not is_finished(job):
        does = "runs what is left of it as well" if failed_only else "runs beside it"
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


def _run_again(
    run: str, failed_only: bool, settings: tuple[str, ...], where: "Sources"
) -> NoReturn:
    """Replace this process by `onejob run`, which needs terminal, signals and folder to itself."""
    if not run:
        raise CommandError("run/: an id is missing", "onejob runs shows them")
    words = ["run", "--resume" if failed_only else "--again", run]
    words += [word for setting in settings for word in ("--set", setting)]
    words += ["--data-dir", str(where.data_dir.path)]
    os.execv(sys.executable, [sys.executable, "-m", "onejob", *words])


def _created(api: "Api", document: dict[str, Any], namespace: str) -> dict[str, Any]:
    from onejob.cli.manifests.loading import manifest_from_document
    from onejob.cli.manifests.sending import create

    return create(api, manifest_from_document(document), namespace)
