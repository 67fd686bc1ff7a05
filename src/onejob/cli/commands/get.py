"""`onejob get`: the server's own tables, as kubectl prints them."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from onejob.cli.completing import complete_kind_or_object
from onejob.cli.errors import CommandError
from onejob.cli.options import client_options, runs_option

if TYPE_CHECKING:
    from onejob.api.crd.columns import JsonPath
    from onejob.cli.resource_args import ResourceArg
    from onejob.cli.sources.selection import Sources

_EPILOG = """\b
Examples:
  onejob get jobs                  # from the server, else the latest runs
  onejob get pods -l job-name=pi   # Pods of a Job
  onejob get job pi -o yaml        # whole object
  onejob get jobs,cronjobs -A      # several kinds, all namespaces
  onejob get jobs -w               # list, then watch
  onejob get job pi -o jsonpath='{.status.succeeded}'
  onejob get pods -o jsonpath='{range .items[*]}{.status.phase}{"\\n"}{end}'
  onejob get pods -o custom-columns=NAME:.metadata.name,PHASE:.status.phase
  onejob get pods --sort-by .status.startTime"""


_FORMS = ("wide", "json", "yaml", "name")
_TEMPLATES = ("jsonpath=", "custom-columns=")


def _check_output_format(
    _context: click.Context, _option: click.Parameter, output: str | None
) -> str | None:
    if output is None or output in _FORMS or output.startswith(_TEMPLATES):
        return output
    raise click.BadParameter(f"{output!r} is not one of {', '.join((*_FORMS, *_TEMPLATES))}")


@click.command(epilog=_EPILOG, short_help="List objects")
@click.argument(
    "what",
    nargs=-1,
    metavar="TYPE[,TYPE] [NAME]... | TYPE/NAME...",
    shell_complete=complete_kind_or_object,
)
@click.option("-A", "--all-namespaces", is_flag=True, help="All namespaces.")
@click.option("-l", "--selector", default="", metavar="LABELS", help="Select by labels: a=b,c!=d.")
@click.option(
    "--field-selector", default="", metavar="FIELDS", help="Select by fields: status.phase=Failed."
)
@click.option(
    "-o",
    "--output",
    metavar="FORM",
    callback=_check_output_format,
    help="wide, json, yaml, name, jsonpath=TEMPLATE or custom-columns=HEADER:PATH,...",
)
@click.option("--sort-by", default="", metavar="PATH", help="Sort by a field: .status.startTime.")
@click.option(
    "--show-managed-fields", is_flag=True, help="Include managedFields, with -o json or yaml."
)
@click.option("--no-headers", is_flag=True, help="Rows only.")
@click.option("-w", "--watch", is_flag=True, help="Watch for changes after listing.")
@runs_option
@client_options
def command(
    what: tuple[str, ...],
    all_namespaces: bool,
    selector: str,
    field_selector: str,
    output: str | None,
    sort_by: str,
    show_managed_fields: bool,
    no_headers: bool,
    watch: bool,
    where: "Sources",
) -> int:
    """List objects of the server or of kept runs."""
    from onejob.cli.reports.listing import (
        Query,
        find_documents,
        find_tables,
        print_tables,
        watch_table,
    )
    from onejob.cli.resource_args import parse_resource_args

    args = parse_resource_args(what, known=where.kinds())
    query = Query(selector, field_selector, all_namespaces, sort_by)
    if watch and sort_by:
        raise CommandError(
            "--sort-by cannot be combined with --watch", "changes are printed as they arrive"
        )
    if output not in (None, "wide"):
        if watch:
            raise CommandError("-o cannot be combined with --watch", "--watch prints only tables")
        show = _shown_as(output)
        as_list = len(args) > 1 or not args[0].name
        documents = find_documents(where, args, query)
        if not show_managed_fields:
            for document in documents:
                document["metadata"].pop("managedFields", None)
        show(documents, as_list, not no_headers)
        return 0
    if watch:
        if len(args) != 1:
            raise CommandError("--watch requires a single kind or object")
        watch_table(where, args[0], query, wide=output == "wide", headers=not no_headers)
        return 0
    tables = find_tables(where, args, query)
    if not any(table.rows for table in tables):
        print(_empty_message(where, args, all_namespaces=all_namespaces), file=sys.stderr)
        return 0
    print_tables(tables, wide=output == "wide", headers=not no_headers)
    return 0


def _empty_message(where: "Sources", args: "list[ResourceArg]", *, all_namespaces: bool) -> str:
    """Return the message for an empty result."""
    api = where.server()
    if api is None and not where.runs_are_kept():
        return "No resources found (start a Job with onejob run, or a server with onejob serve)."
    namespace = where.namespace if api is None else where.namespace_in(api)
    if all_namespaces or not namespace or not any(arg.kind.namespaced for arg in args):
        return "No resources found."
    return f"No resources found in {namespace} namespace."


def _shown_as(output: str) -> Callable[[list[dict[str, Any]], bool, bool], None]:
    """Return a function that prints documents in this format.

    Its flags are "as a list" and "with headers". Templates are parsed here, so that errors in them
    are raised before any request.
    """
    from onejob.cli.display.output import print_documents, whole_document

    form, _, text = output.partition("=")
    if form == "jsonpath":
        from onejob.cli.display.templates import parse_template, render_template

        parts = parse_template(text)
        return lambda documents, as_list, _: print(
            render_template(parts, whole_document(documents, as_list=as_list)), end=""
        )
    if form == "custom-columns":
        from onejob.cli.display.templates import parse_columns

        columns = parse_columns(text)
        return lambda documents, _, headers: _print_columns(columns, documents, headers)
    return lambda documents, as_list, _: print_documents(documents, output, as_list=as_list)


def _print_columns(
    columns: "list[tuple[str, JsonPath]]", documents: list[dict[str, Any]], headers: bool
) -> None:
    from onejob.cli.display.tables import render_table
    from onejob.cli.display.templates import column_cells
    from onejob.cli.display.terminal import terminal_of

    rows = [column_cells(columns, document) for document in documents]
    names = [name for name, _ in columns] if headers else ()
    for line in render_table(names, rows, terminal_of().width):
        print(line)
