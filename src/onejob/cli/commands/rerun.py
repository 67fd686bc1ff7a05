"""`onejob rerun`: a finished Job once more, or what of it did not succeed."""

from typing import TYPE_CHECKING, Any

import click

from onejob.cli.completing import complete_object
from onejob.cli.errors import CommandError
from onejob.cli.options import client_options, output_option

if TYPE_CHECKING:
    from onejob.cli.clients.base import Api
    from onejob.cli.clients.sources import Sources

_EPILOG = """\b
Examples:
  onejob rerun job/train                        # all of it, as train-rerun-1
  onejob rerun job/train --failed-only          # the indexes or completions that did not succeed
  onejob rerun job/train --set lr=0.01          # with another parameter or variable
  onejob rerun job/train --dry-run=client -o yaml"""


@click.command(epilog=_EPILOG, short_help="Run a finished Job once more")
@click.argument("what", nargs=-1, metavar="job/NAME", shell_complete=complete_object)
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
    """Create a Job like one that has run. Its label onejob.dev/lineage names the first of them."""
    from onejob.cli.clients.base import get, list_all
    from onejob.cli.clients.params import params_of_job
    from onejob.cli.clients.resource_args import one_resource_arg
    from onejob.cli.display.output import print_documents, resource_name
    from onejob.objects.meta import JOBS
    from onejob.planning.job.rerun import rerun

    arg = one_resource_arg(what, default="job")
    if arg.kind.resource != JOBS:
        raise CommandError(f"{arg} is no Job", "name job/NAME")
    api = where.require_server()
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
    if output:
        print_documents(documents, output)
        return 0
    for document in documents:
        print(f"{resource_name(document)} created{' (client dry run)' if dry_run else ''}")
    return 0


def parse_settings(items: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not name or not equals:
            raise CommandError(f"--set {item}: expected NAME=VALUE")
        found[name] = value
    return found


def _created(api: "Api", document: dict[str, Any], namespace: str) -> dict[str, Any]:
    from onejob.cli.clients.writing import create
    from onejob.cli.run.manifests import made_manifest

    return create(api, made_manifest(document), namespace)
