"""`onejob attach`: follow a run in the background, from its first line of output to its end."""

import click

from onejob.cli.completing import complete_object
from onejob.cli.errors import EXIT_FAILED, CommandError
from onejob.cli.options import data_dir_option

_EPILOG = """\b
Examples:
  onejob run --detach --name train -- ./train.py
  onejob attach train              # Ctrl-C leaves it running
  onejob attach run/20260131-120000 --tail 20
  onejob stop job/train"""

_LOOK_SECONDS = 0.1


@click.command(epilog=_EPILOG, short_help="Follow a run in the background")
@click.argument("what", metavar="run/ID | job/NAME", shell_complete=complete_object)
@click.option("--tail", type=click.IntRange(0), metavar="N", help="Begin with the last N lines.")
@data_dir_option
def command(what: str, tail: int | None, data_dir: str | None) -> int:
    """Print the output of a run started with run --detach, and follow it until the run ends.

    The exit code is that of the run. Ctrl-C ends only this command. A run with --on is followed on
    its cluster; Ctrl-C asks whether to delete it.
    """
    import codecs
    import sys
    import time

    from onejob.cli.kept_runs import OUTPUT, find_running, is_under_way, run_end
    from onejob.cli.places import data_dir as find_data_dir

    place = find_data_dir(data_dir)
    place.require_trusted()
    folder, run = find_running(place.runs, what.removeprefix("run/"))
    if run.on is not None:
        if tail is not None:
            raise CommandError(
                "--tail supports only runs on this machine", "onejob logs --tail reads their logs"
            )
        from onejob.cli.remote.session import RemoteOptions, attach_remote
        from onejob.cli.run.session import SessionOptions
        from onejob.node.options import NodeOptions

        session = SessionOptions(data_dir=place, node=NodeOptions())
        return attach_remote(folder, RemoteOptions(run.on, place, session))
    try:
        output = open(folder / OUTPUT, "rb")  # noqa: SIM115 (closed below)
    except FileNotFoundError:
        raise CommandError(
            f"run {run.id} was not started with --detach",
            f"onejob logs -f {f'job/{run.jobs[0].name}' if run.jobs else 'job/NAME'} "
            f"--run {run.id}",
        ) from None
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    with output:
        if tail is not None:
            output.seek(_start_of_last_lines(output.read(), tail))
        try:
            while True:
                running = is_under_way(folder)
                sys.stdout.write(decoder.decode(output.read(), final=not running))
                sys.stdout.flush()
                if not running:
                    break
                time.sleep(_LOOK_SECONDS)
        except KeyboardInterrupt:
            print(f"\nrun/{run.id} continues (onejob stop run/{run.id} stops it)", file=sys.stderr)
            return 0
    end = run_end(folder)
    if end is None or end.run.exit_code is None:
        print(f"run/{run.id}: the process of the run was killed", file=sys.stderr)
        return EXIT_FAILED
    return end.run.exit_code


def _start_of_last_lines(content: bytes, count: int) -> int:
    at = len(content)
    for _ in range(count + 1):
        if at < 0:
            break
        at = content.rfind(b"\n", 0, at)
    return at + 1
