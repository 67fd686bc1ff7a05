"""`onejob queue`: running and waiting Jobs, their blockers and estimated start times."""

import sys
from typing import TYPE_CHECKING

import click

from onejob.cli.options import client_options, output_option

if TYPE_CHECKING:
    from onejob.cli.sources.selection import Sources

_EPILOG = """\b
Examples:
  onejob queue             # limits, and Jobs in order
  onejob queue -n team-a   # Jobs of a namespace
  onejob queue -o json | jq '.jobs[] | select(.state == "waiting")'

Limits are set by onejob serve --queue, or in the ConfigMap onejob-queues of kube-system:

\b
  kubectl create configmap onejob-queues -n kube-system \\
    --from-literal=limits='*=8,gpu=2'

START is an estimate from the durations of earlier Jobs under the same limits."""


@click.command(epilog=_EPILOG, short_help="Show queued Jobs")
@output_option("json")
@click.option(
    "--run",
    "run_id",
    default="",
    metavar="RUN",
    help="Show a kept run: its ID or the name of its Job.",
)
@client_options
def command(output: str | None, where: "Sources") -> int:
    """Show concurrency limits of Jobs, and the running and queued Jobs in order."""
    import msgspec

    from onejob.cli.display.tables import render_table
    from onejob.cli.display.terminal import terminal_of
    from onejob.cli.queue import showing
    from onejob.cli.queue.reading import read_queue
    from onejob.clock import SystemClock
    from onejob.diagnosis.queues import queue_document
    from onejob.planning.queue.forecast import scopes

    now = SystemClock().now()
    api = where.selected_source()
    limits, entries = read_queue(
        api, now, lambda text: print(f"note: {text}", file=sys.stderr), where.namespace
    )
    used = scopes(entries, limits)
    if where.namespace:
        entries = [one for one in entries if one.job.metadata.namespace == where.namespace]
    if output:
        encoded = msgspec.json.encode(queue_document(entries, used))
        print(msgspec.json.format(encoded, indent=2).decode())
        return 0
    if not limits and not entries:
        print("No limits are set: every Job starts immediately (see onejob queue --help).")
        return 0
    width = terminal_of().width
    for line in render_table(showing.LIMIT_HEADERS, showing.limit_rows(used), width):
        print(line)
    if entries:
        print()
    for line in render_table(showing.JOB_HEADERS, showing.job_rows(entries, now), width, whole=3):
        if entries:
            print(line)
    return 0
