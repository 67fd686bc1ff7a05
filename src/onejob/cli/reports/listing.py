"""Lists and tables of `onejob get`: query a server or the kept runs, and lay out the rows."""

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any, Final, TypeAlias

import msgspec

from onejob.cli.display.ended_rows import ended_cells
from onejob.cli.display.tables import column_widths, fits, render_table, without_empty_columns
from onejob.cli.display.terminal import terminal_of
from onejob.cli.errors import CommandError
from onejob.cli.kept_runs import RunEnd
from onejob.cli.resource_args import ResourceArg
from onejob.cli.sources.base import TABLE, Api, ApiRequest, get, list_all, path_of, watch_events
from onejob.cli.sources.selection import Sources
from onejob.objects.meta import CRONJOBS
from onejob.wire.kinds import Kind

#: Key function of a document, see `templates.sort_key`.
SortKey: TypeAlias = Callable[[Any], tuple[int, Any]]


class Query(msgspec.Struct, frozen=True):
    labels: str = ""
    fields: str = ""
    all_namespaces: bool = False
    #: JSON path; "" keeps the given order.
    sort_by: str = ""
    #: List the objects of kept runs, too, if there is a server.
    with_runs: bool = False

    def order(self) -> "SortKey | None":
        """Return the sort key function; None keeps the order. Raises CommandError."""
        if not self.sort_by:
            return None
        from onejob.cli.display.templates import relaxed_path, sort_key

        return partial(sort_key, relaxed_path(self.sort_by))

    def check_found(self, keys: "Sequence[tuple[int, Any]]") -> None:
        """Raise CommandError if no object has the field to sort by, which is probably misspelt."""
        from onejob.cli.display.templates import NO_VALUE

        if keys and all(key == NO_VALUE for key in keys):
            raise CommandError(f"--sort-by {self.sort_by}: no object has this field", "see -o yaml")

    def parameters(self, **more: str) -> dict[str, str]:
        return {"labelSelector": self.labels, "fieldSelector": self.fields, **more}


class Rows(msgspec.Struct):
    """Table rows of one kind, possibly from several servers or runs."""

    kind: Kind
    columns: list[dict[str, Any]] = msgspec.field(default_factory=list)
    #: Namespace, run (or ""), cells.
    rows: list[tuple[str, str, list[str]]] = msgspec.field(default_factory=list)
    show_namespace: bool = False
    #: Sort key function; requires rows with whole objects.
    order: "SortKey | None" = None
    #: Sort keys, one per row.
    keys: list[tuple[int, Any]] = msgspec.field(default_factory=list)

    @property
    def identifying_columns(self) -> int:
        """Number of columns that identify a row."""
        return 2 if self.show_namespace else 1

    def sort(self) -> None:
        if self.order is not None:
            ranks = sorted(range(len(self.rows)), key=self.keys.__getitem__)
            self.rows = [self.rows[rank] for rank in ranks]

    def add(self, table: dict[str, Any], run: str = "", ended: RunEnd | None = None) -> None:
        """Append the rows of a Table. With `ended`, they must contain whole objects."""
        own = _OWN_COLUMNS.get(self.kind.resource)
        columns = table["columnDefinitions"]
        # A watch sends the columns only once.
        self.columns = self.columns or (own.put_in(columns) if own else columns)
        names = [column["name"] for column in self.columns]
        for row in table["rows"]:
            metadata = row["object"]["metadata"]
            cells = row["cells"]
            if own is not None:
                cells = own.add_cell(names, cells, row["object"])
            if ended is not None:
                cells = ended_cells(row["object"], names, cells, ended)
            shown = [_cell(cell) for cell in cells]
            if self.order is not None:
                self.keys.append(self.order(row["object"]))
            self.rows.append((metadata.get("namespace", ""), run, shown))

    def layout(
        self, *, wide: bool, prefix: bool, short_runs: bool = False
    ) -> tuple[list[str], list[list[str]]]:
        """Return headers and rows.

        `short_runs` shows only the last part of a run's id, which identifies it as well.
        """
        kept = [i for i, column in enumerate(self.columns) if wide or not column["priority"]]
        show_run = any(run for _, run, _ in self.rows)
        headers = [self.columns[i]["name"].upper() for i in kept]
        headers = ["NAMESPACE"] * self.show_namespace + headers + ["RUN"] * show_run
        rows = []
        for namespace, run_id, cells in self.rows:
            run = run_id.rpartition("-")[2] if short_runs else run_id
            shown = [cells[i] for i in kept]
            if prefix:
                shown[0] = str(ResourceArg(self.kind, shown[0]))
            rows.append([namespace] * self.show_namespace + shown + [run] * show_run)
        return headers, rows


class _NextRun:
    """Column of CronJobs with the time until the next Job.

    It is not a column of the server, whose tables are the same as those of Kubernetes.
    """

    NAME: Final = "Next Run"
    AFTER: Final = "Last Schedule"

    def put_in(self, columns: list[dict[str, Any]]) -> list[dict[str, Any]]:
        at = [column["name"] for column in columns].index(self.AFTER) + 1
        added = {"name": self.NAME, "type": "string", "priority": 0}
        return [*columns[:at], added, *columns[at:]]

    def add_cell(
        self, names: Sequence[str], cells: list[Any], document: dict[str, Any]
    ) -> list[Any]:
        from onejob.api.kinds.printing import human_duration
        from onejob.clock import SystemClock, local_zone
        from onejob.diagnosis.cronjobs import next_run

        now = SystemClock().now()
        following = next_run(document, now, local_zone())
        shown = "<none>"
        if following is not None:
            shown = human_duration((following - now).total_seconds())
        at = names.index(self.NAME)
        return [*cells[:at], shown, *cells[at:]]


#: Columns that only this client shows; they need whole objects.
_OWN_COLUMNS: Final = {CRONJOBS: _NextRun()}


def find_tables(where: Sources, args: Sequence[ResourceArg], query: Query) -> list[Rows]:
    """Return one table for each kind. Raises NotFound or CommandError."""
    server = _server_if_listing(where, args)
    found = []
    for kind, group in groupby(args, key=lambda arg: arg.kind):
        show_namespace = query.all_namespaces and kind.namespaced
        table = Rows(kind, show_namespace=show_namespace, order=query.order())
        for arg in group:
            if arg.name:
                api, namespace = where.holding(arg)
                path = path_of(kind, namespace, arg.name)
                ask = ApiRequest("GET", path, _include_object_parameter(api, kind, query), TABLE)
                table.add(api.send(ask).document, ended=api.ended)
                continue
            if server is not None:
                _add_pages(table, server, _namespace_to_list(where, server, kind, query), query)
            if server is None or query.with_runs:
                for run in where.runs():
                    _add_pages(table, run, where.namespace, query, run.run.id)
        table.sort()
        found.append(table)
    query.check_found([key for table in found for key in table.keys])
    return found


def find_documents(
    where: Sources, args: Sequence[ResourceArg], query: Query
) -> list[dict[str, Any]]:
    server = _server_if_listing(where, args)
    found: list[dict[str, Any]] = []
    for arg in args:
        kind = arg.kind
        if arg.name:
            api, namespace = where.holding(arg)
            found.append(get(api, kind, namespace, arg.name))
            continue
        places: Iterator[Api] = iter((server,)) if server is not None else iter(where.runs())
        for api in places:
            namespace = _namespace_to_list(where, api, kind, query)
            named = {"apiVersion": kind.api_version, "kind": kind.kind}
            items = list_all(api, kind, namespace, **query.parameters())
            found.extend({**named, **item} for item in items)
    order = query.order()
    if order is None:
        return found
    query.check_found([order(document) for document in found])
    return sorted(found, key=order)


def print_tables(tables: Sequence[Rows], *, wide: bool, headers: bool) -> None:
    width = terminal_of().width
    prefix = len(tables) > 1
    first = True
    for table in tables:
        if not table.rows:
            continue
        if not first:
            print()
        first = False
        names, rows = table.layout(wide=wide, prefix=prefix)
        if not fits([names, *rows], width):
            names, rows = table.layout(wide=wide, prefix=prefix, short_runs=True)
        if not fits([names, *rows], width):
            names, rows = without_empty_columns(names, rows)
        for line in render_table(
            names if headers else (), rows, width, whole=table.identifying_columns
        ):
            print(line)


def watch_table(
    where: Sources, arg: ResourceArg, query: Query, *, wide: bool, headers: bool
) -> None:
    """Print the current rows, then a row for each change, until the server ends the watch."""
    api = where.server()
    if api is None:
        raise CommandError("--watch requires a server", "start one with onejob serve")
    place = _namespace_to_list(where, api, arg.kind, query)
    path = path_of(arg.kind, place)
    fields = ",".join(filter(None, [query.fields, f"metadata.name={arg.name}" * bool(arg.name)]))
    parameters = {
        "labelSelector": query.labels,
        "fieldSelector": fields,
        **_include_object_parameter(api, arg.kind, query),
    }
    listing = api.send(ApiRequest("GET", path, parameters, TABLE)).document
    table = Rows(arg.kind, show_namespace=query.all_namespaces)
    table.add(listing)
    names, rows = table.layout(wide=wide, prefix=False)
    widths = column_widths([names, *rows])
    whole = table.identifying_columns
    for line in render_table(names if headers else (), rows, terminal_of().width, whole=whole):
        print(line)
    sys.stdout.flush()
    revision = listing["metadata"]["resourceVersion"]
    ask = ApiRequest(
        "GET", path, {**parameters, "watch": "true", "resourceVersion": revision}, TABLE
    )
    for event in watch_events(api, ask):
        if event["type"] in ("BOOKMARK", "ERROR"):
            continue
        table.rows = []
        table.add(event["object"])
        _, rows = table.layout(wide=wide, prefix=False)
        width = terminal_of().width
        for line in render_table((), rows, width, whole=whole, at_least=widths):
            print(line, flush=True)


def _add_pages(table: Rows, api: Api, namespace: str, query: Query, run: str = "") -> None:
    token = ""
    while True:
        asked = query.parameters(
            limit="500", **{"continue": token}, **_include_object_parameter(api, table.kind, query)
        )
        page = api.send(ApiRequest("GET", path_of(table.kind, namespace), asked, TABLE)).document
        table.add(page, run, api.ended)
        token = page["metadata"].get("continue", "")
        if not token:
            return


def _namespace_to_list(where: Sources, api: Api, kind: Kind, query: Query) -> str:
    if query.all_namespaces or not kind.namespaced:
        return ""
    return where.namespace_in(api)


def _server_if_listing(where: Sources, args: Sequence[ResourceArg]) -> Api | None:
    """Return the server if there is anything to list; named objects are looked up one by one."""
    return None if all(arg.name for arg in args) else where.listed_server()


def _include_object_parameter(api: Api, kind: Kind, query: Query) -> dict[str, str]:
    """Return the query for rows with whole objects if needed; the default is metadata only."""
    needed = api.ended is not None or query.sort_by or kind.resource in _OWN_COLUMNS
    return {"includeObject": "Object"} if needed else {}


def _cell(value: Any) -> str:
    return "" if value is None else str(value)
