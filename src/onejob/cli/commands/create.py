"""`onejob create`: objects from files; a Job, CronJob or Namespace from options."""

import os
from typing import TYPE_CHECKING, Any

import click

from onejob.cli.completing import complete_file
from onejob.cli.errors import CommandError
from onejob.cli.options import CommandAfterDashes, client_options, output_option

if TYPE_CHECKING:
    from onejob.cli.manifests.loading import Manifest
    from onejob.cli.sources.base import Api
    from onejob.cli.sources.selection import Sources

_EPILOG = """\b
Examples:
  onejob create -f job.yaml
  onejob create job pi -- ./pi.py 1000
  onejob create job now --from=cronjob/nightly   # run a CronJob now
  onejob create cronjob tidy --schedule '0 3 * * *' -- ./tidy.sh
  onejob create namespace batch
  onejob create job x --dry-run=client -o yaml -- date"""


@click.command(cls=CommandAfterDashes, epilog=_EPILOG, short_help="Create objects")
@click.argument("what", nargs=-1, metavar="[job|cronjob|namespace NAME] [-- COMMAND [ARG]...]")
@click.option(
    "-f",
    "--filename",
    multiple=True,
    metavar="FILE",
    shell_complete=complete_file,
    help="File, directory or -.",
)
@click.option("--image", default="", metavar="IMAGE", help="Image of the container.")
@click.option(
    "--from", "origin", default="", metavar="cronjob/NAME", help="Run the Job of a CronJob now."
)
@click.option(
    "--workdir",
    metavar="DIR",
    help="Working directory of the command. [default: the current directory, if the server runs "
    "processes on this machine]",
)
@click.option(
    "--schedule", default="", metavar="CRON", help="Schedule of the CronJob, e.g. '*/5 * * * *'."
)
@click.option(
    "--dry-run",
    type=click.Choice(["client", "server"]),
    help="client: only print the objects. server: let the server check them without storing them.",
)
@output_option("json", "yaml", "name")
@client_options
def command(
    what: tuple[str, ...],
    after_dashes: tuple[str, ...] | None,
    filename: tuple[str, ...],
    dry_run: str | None,
    output: str | None,
    where: "Sources",
    **options: Any,
) -> int:
    """Create objects on the server."""
    from onejob.cli.display.output import print_documents, resource_name
    from onejob.cli.manifests.loading import read_manifests
    from onejob.cli.manifests.sending import create, manifest_namespace

    if bool(filename) == bool(what):
        raise CommandError("specify files, or a kind and a name", "see onejob create --help")
    api: Api | None = None
    if filename:
        manifests = read_manifests(filename, where.kinds())
    else:
        _check(what, after_dashes, options)
        if options["origin"] or dry_run != "client":
            api = where.require_server()
        manifests = [_manifest_from_options(where, api, what, after_dashes, **options)]
    if dry_run == "client":
        documents = [manifest.document for manifest in manifests]
    else:
        api = api or where.require_server()
        documents = [
            create(
                api,
                manifest,
                manifest_namespace(manifest, where.namespace, api.namespace),
                dry_run=dry_run == "server",
            )
            for manifest in manifests
        ]
    if output:
        print_documents(documents, output)
        return 0
    for document in documents:
        print(f"{resource_name(document)} created{f' ({dry_run} dry run)' if dry_run else ''}")
    return 0


def _check(
    what: tuple[str, ...], command_line: tuple[str, ...] | None, options: dict[str, Any]
) -> None:
    """Validate the arguments. Called first, so that usage errors precede errors of the server."""
    if len(what) != 2:
        raise CommandError("specify a kind and a name", "for example: onejob create job pi -- date")
    kind, _ = what
    if kind in ("namespace", "ns"):
        return
    if kind not in ("job", "cronjob", "cj"):
        raise CommandError(
            f"onejob create does not support {kind}",
            "supported are job, cronjob and namespace; for other kinds use -f",
        )
    if not (options["origin"] or options["image"] or command_line):
        raise CommandError("nothing to run", "specify a command after --, or --image")
    if kind != "job" and not options["schedule"]:
        raise CommandError("a CronJob requires --schedule", "for example: --schedule '0 3 * * *'")


def _manifest_from_options(
    where: "Sources",
    api: "Api | None",
    what: tuple[str, ...],
    command_line: tuple[str, ...] | None,
    image: str,
    origin: str,
    schedule: str,
    workdir: str | None,
) -> "Manifest":
    """Return the manifest of an object that the options describe."""
    from onejob.cli.manifests.job_from_command import HOST_IMAGE, CommandJob, job_document
    from onejob.cli.manifests.loading import manifest_from_document

    kind, name = what
    if kind in ("namespace", "ns"):
        document: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": name},
        }
    else:
        if origin:
            assert api is not None
            document = _job_of_cronjob(where, api, name, origin)
        else:
            folder = os.path.abspath(workdir) if workdir else _default_folder(where, api)
            job = CommandJob(
                command_line or (), name=name, image=image or HOST_IMAGE, working_dir=folder
            )
            document = job_document(job, dict(os.environ))
        if kind != "job":
            document = _cronjob_of(document, schedule)
    return manifest_from_document(document)


def _default_folder(where: "Sources", api: "Api | None") -> str:
    """Return the caller's working directory for the command, as with `onejob run`; "" if unusable.

    It is usable if the server is on this machine and runs Pods as processes, without an image of
    their own.
    """
    from onejob.cli.sources.base import list_all
    from onejob.objects.meta import NODES
    from onejob.wire.kinds import BY_RESOURCE

    if api is None or not where.is_local(api):
        return ""
    nodes = list_all(api, BY_RESOURCE[NODES], "")
    runtimes = {
        node.get("status", {}).get("nodeInfo", {}).get("containerRuntimeVersion", "")
        for node in nodes
    }
    return os.getcwd() if runtimes and all(r.startswith("process:") for r in runtimes) else ""


def _cronjob_of(job: dict[str, Any], schedule: str) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": job["metadata"],
        "spec": {"schedule": schedule, "jobTemplate": {"spec": job["spec"]}},
    }


def _job_of_cronjob(where: "Sources", api: "Api", name: str, origin: str) -> dict[str, Any]:
    from onejob.cli.resource_args import one_resource_arg
    from onejob.cli.sources.base import get
    from onejob.objects.meta import CRONJOBS
    from onejob.planning.cronjob.manual_jobs import job_of_cronjob

    arg = one_resource_arg([origin], default="cronjob")
    if arg.kind.resource != CRONJOBS:
        raise CommandError(f"--from {origin}: expected cronjob/NAME")
    return job_of_cronjob(get(api, arg.kind, where.namespace_in(api), arg.name), {"name": name})
