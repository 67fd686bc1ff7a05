"""`onejob top`: live resource usage of the node, Jobs and Pods."""

import sys
from typing import TYPE_CHECKING

import click

from onejob.cli.options import client_options, output_option, runs_option

if TYPE_CHECKING:
    from onejob.cli.sources.selection import Sources

_EPILOG = """\b
Examples:
  onejob top          # live; q quits, c m a n sort
  onejob top -n batch --sort memory
  onejob top --once   # one table, also without a terminal
  onejob top --run train   # the Pods of a run
  onejob top -o json | jq '.pods[] | select(.usage.memoryBytes > 1e9) | .name'

CPU is the average in millicores since the last update. A dash means not measured: the Pod has not
started, or the runtime runs no processes."""


@click.command(epilog=_EPILOG, short_help="Show the resource usage of node, Jobs and Pods")
@click.option(
    "--sort",
    type=click.Choice(["cpu", "memory", "age", "name"]),
    default="cpu",
    show_default=True,
    help="Sort by this column: highest first, names alphabetically.",
)
@click.option("--once", is_flag=True, help="Print one table and exit.")
@click.option(
    "--interval",
    type=click.FloatRange(0.2, 3600),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Time between updates.",
)
@output_option("json")
@runs_option
@client_options
def command(sort: str, once: bool, interval: float, output: str | None, where: "Sources") -> int:
    """Show the resource usage of the node and of active Jobs and Pods, by default in all
    namespaces.

    Without a server, or with --runs or --run, those of the runs that are under way.
    """
    import msgspec

    from onejob.cli.display.terminal import terminal_of
    from onejob.cli.top.layout import as_lines
    from onejob.cli.top.reading import read_runs, read_snapshot
    from onejob.cli.top.run_usage import RunUsageMeter
    from onejob.cli.top.snapshot import TopSnapshot, in_order
    from onejob.clock import SystemClock

    api = where.server()
    if api is None and not where.only_runs and not any(run.ended is None for run in where.runs()):
        api = where.require_server()
    meter = RunUsageMeter()

    def read() -> TopSnapshot:
        if api is None:
            return read_runs(where, meter, SystemClock())
        return read_snapshot(api, where.namespace, api.namespace, SystemClock())

    if output:
        snapshot = read()
        ordered = msgspec.structs.replace(
            snapshot, jobs=in_order(snapshot.jobs, sort), pods=in_order(snapshot.pods, sort)
        )
        print(msgspec.json.format(msgspec.json.encode(ordered), indent=2).decode())
        return 0
    terminal = terminal_of()
    if once or not terminal.interactive or not sys.stdin.isatty():
        for line in as_lines(read(), sort, terminal.width):
            print(line)
        return 0
    from onejob.cli.top.screen import follow

    follow(read, sort, interval, f"onejob top: {'runs' if api is None else api.title}")
    return 0
