"""`onejob stop`: stop a run that another process executes, or suspend a Job of the server."""

from typing import TYPE_CHECKING

import click

from onejob.cli.completing import complete_object
from onejob.cli.display.durations import duration
from onejob.cli.errors import CommandError
from onejob.cli.options import client_options

if TYPE_CHECKING:
    from pathlib import Path

    from onejob.cli.kept_runs import Run
    from onejob.cli.sources.selection import Sources

_EPILOG = """\b
Examples:
  onejob stop run/20260131-120000   # Pods get their grace period
  onejob stop job/train             # the run of this Job
  onejob stop job/train --now       # kill the Pods
  onejob run --resume train         # go on later"""


@click.command(epilog=_EPILOG, short_help="Stop a run, or suspend a Job")
@click.argument("what", nargs=-1, metavar="run/ID | job/NAME ...", shell_complete=complete_object)
@click.option("--now", is_flag=True, help="Kill the Pods of a run without their grace period.")
@click.option("--wait/--no-wait", default=True, help="Wait until the runs have ended.")
@click.option("--timeout", type=duration, metavar="DURATION", help="Maximum time to wait.")
@client_options
def command(
    what: tuple[str, ...], now: bool, wait: bool, timeout: float | None, where: "Sources"
) -> int:
    """Stop runs, as Ctrl-C in their terminals does; onejob run --resume continues them.

    A Job of the server is suspended, as by onejob suspend.
    """
    from onejob.cli.run.stopping import stop_run

    if not what:
        raise CommandError("no run specified", "for example run/ID or job/NAME")
    for word in what:
        if (found := _run_of(where, word)) is None:
            from onejob.cli.commands.suspend import set_suspend

            set_suspend(where, (word,), suspended=True)
        elif (run := found[1]).on is not None:
            raise CommandError(
                f"run/{run.id} is on another cluster",
                f"onejob attach run/{run.id}, then Ctrl-C, deletes it",
            )
        else:
            stop_run(*found, now=now, wait=wait, timeout=timeout)
    return 0


def _run_of(where: "Sources", word: str) -> "tuple[Path, Run] | None":
    """Return the run that is meant; None for a Job of the server. Raises CommandError."""
    from onejob.cli.kept_runs import find_running, is_under_way, runs_of_job
    from onejob.cli.resource_args import one_resource_arg
    from onejob.objects.meta import JOBS, WORKFLOWS

    if word.startswith("run/"):
        return find_running(where.data_dir.runs, word.removeprefix("run/"))
    arg = one_resource_arg([word], default="job")
    if arg.kind.resource not in (JOBS, WORKFLOWS):
        raise CommandError(f"{arg} cannot be stopped", "name run/ID, job/NAME or workflow/NAME")
    name = f"{arg.kind.singular}/{arg.name}"
    if where.kubeconfig is not None:
        return None
    running = [
        run for folder, run in runs_of_job(where.data_dir.runs, name) if is_under_way(folder)
    ]
    on_server = where.has_on_server(arg)
    if running and on_server:
        raise CommandError(
            f"{arg} is on the server and in run/{running[0].id}",
            f"onejob stop run/{running[0].id}, or onejob suspend {name}",
        )
    return None if on_server else find_running(where.data_dir.runs, name)
