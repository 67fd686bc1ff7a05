"""`onejob get`: the server's own tables, as kubectl prints them."""

import sys
from typing import TYPE_CHECKING

import click

from onejob.cli.errors import CommandError
from onejob.cli.options import client_options, output_option, runs_option

if TYPE_CHECKING:
    from onejob.cli.clients.sources import Sources

_EPILOG = """\b
Examples:
  onejob get jobs                    # of the server, else of the latest runs
  onejob get pods -l job-name=pi     # the Pods of one Job
  onejob get job pi -o yaml          # everything about it
  onejob get jobs,cronjobs -A        # several kinds, all namespaces
  onejob get jobs -w                 # and go on as they change"""


@click.command(epilog=_EPILOG, short_help="List objects")
@click.argument("what", nargs=-1, metavar="TYPE[,TYPE] [NAME]... | TYPE/NAME...")
@click.option("-A", "--all-namespaces", is_flag=True, help="All namespaces.")
@click.option("-l", "--selector", default="", metavar="LABELS", help="By labels: a=b,c!=d.")
@click.option(
    "--field-selector", default="", metavar="FIELDS", help="By fields: status.phase=Failed."
)
@output_option("wide", "json", "yaml", "name")
@click.option("--show-managed-fields", is_flag=True, help="With -o json or yaml.")
@click.option("--no-headers", is_flag=True, help="Rows only.")
@click.option("-w", "--watch", is_flag=True, help="Go on with every change.")
@runs_option
@client_options
def command(
    what: tuple[str, ...],
    all_namespaces: bool,
    selector: str,
    field_selector: str,
    output: str | None,
    show_managed_fields: bool,
    no_headers: bool,
    watch: bool,
    where: "Sources",
) -> int:
    """List objects: of the data dir's server, or of the runs that are kept."""
    from onejob.cli.clients.resource_args import parse_resource_args
    from onejob.cli.display.listing import (
        Query,
        find_documents,
        find_tables,
        print_tables,
        watch_table,
    )
    from onejob.cli.display.output import print_documents

    args = parse_resource_args(what, known=where.kinds())
    query = Query(selector, field_selector, all_namespaces)
    if output in ("json", "yaml", "name"):
        if watch:
            raise CommandError("--watch prints tables only", "leave out -o")
        as_list = len(args) > 1 or not args[0].name
        documents = find_documents(where, args, query)
        if not show_managed_fields:
            for document in documents:
                document["metadata"].pop("managedFields", None)
        print_documents(documents, output, as_list=as_list)
        return 0
    if watch:
        if len(args) != 1:
            raise CommandError("--watch needs a single kind or object")
        watch_table(where, args[0], query, wide=output == "wide", headers=not no_headers)
        return 0
    tables = find_tables(where, args, query)
    if not any(table.rows for table in tables):
        place = "" if all_namespaces or not where.namespace else f" in {where.namespace} namespace"
        print(f"No resources found{place}.", file=sys.stderr)
        return 0
    print_tables(tables, wide=output == "wide", headers=not no_headers)
    return 0
