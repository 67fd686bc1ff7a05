"""`onejob apply`: server-side apply of manifests; fields that they do not set stay unchanged."""

from typing import TYPE_CHECKING

import click

from onejob.cli.completing import complete_file
from onejob.cli.errors import CommandError
from onejob.cli.options import client_options, output_option

if TYPE_CHECKING:
    from onejob.cli.sources.selection import Sources

_EPILOG = """\b
Examples:
  onejob apply -f cron.yaml          # create or update it
  onejob apply -f deploy/ -n batch   # all files of a directory
  cat job.yaml | onejob apply -f -"""


@click.command(epilog=_EPILOG, short_help="Create or update objects to match files")
@click.argument("files", nargs=-1, metavar="[FILE]...", shell_complete=complete_file)
@click.option(
    "-f",
    "--filename",
    multiple=True,
    metavar="FILE",
    shell_complete=complete_file,
    help="Same as FILE, as in kubectl: a file, directory or -.",
)
@click.option(
    "--force-conflicts", is_flag=True, help="Take ownership of fields that other managers set."
)
@click.option(
    "--dry-run", type=click.Choice(["server"]), help="Check the objects without storing them."
)
@output_option("json", "yaml", "name")
@client_options
def command(
    files: tuple[str, ...],
    filename: tuple[str, ...],
    force_conflicts: bool,
    dry_run: str | None,
    output: str | None,
    where: "Sources",
) -> int:
    """Create or update objects to match files (server-side apply)."""
    from onejob.cli.display.output import print_documents, resource_name
    from onejob.cli.manifests.loading import read_manifests
    from onejob.cli.manifests.sending import apply, manifest_namespace
    from onejob.cli.sources.base import get
    from onejob.wire.errors import NotFound

    if not files and not filename:
        raise CommandError("which files?", "for example: onejob apply -f cron.yaml")
    manifests = read_manifests((*files, *filename), where.kinds())
    api = where.require_server()
    for manifest in manifests:
        namespace = manifest_namespace(manifest, where.namespace, api.namespace)
        try:
            before = get(api, manifest.kind, namespace, manifest.name)
        except NotFound:
            before = None
        document, created = apply(
            api, manifest, namespace, force=force_conflicts, dry_run=dry_run is not None
        )
        if output:
            print_documents([document], output)
            continue
        same = before is not None and _version(before) == _version(document)
        verb = "created" if created else "unchanged" if same else "configured"
        print(f"{resource_name(document)} {verb}{' (dry run)' if dry_run else ''}")
    return 0


def _version(document: dict[str, object]) -> object:
    metadata = document["metadata"]
    assert isinstance(metadata, dict)
    return metadata.get("resourceVersion")
