"""`onejob cron`: when a schedule fires; a CronJob's Job, now."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from onejob.cli.errors import CommandError
from onejob.cli.options import client_options, output_option

if TYPE_CHECKING:
    from onejob.cli.clients.sources import Sources
    from onejob.planning.cronjob.schedule import Schedule

_EPILOG = """\b
Examples:
  onejob cron next '*/15 9-17 * * MON-FRI'                 # the next ten times
  onejob cron next '30 2 * * *' --tz Europe/Berlin -n 3    # in a zone, summer time included
  onejob cron next '@every 90m' --after 2030-01-01T00:00:00Z
  onejob cron run cronjob/nightly                          # its Job, now"""

_NEXT_EPILOG = """\b
Examples:
  onejob cron next '0 3 * * *' --tz America/New_York
  onejob cron next '@weekly' -n 3 -o json"""

_RUN_EPILOG = """\b
Examples:
  onejob cron run cronjob/nightly
  onejob cron run nightly -n batch"""


@click.group(epilog=_EPILOG, short_help="Show when a schedule fires, or run a CronJob now")
def command() -> None:
    """Show when a schedule fires, or run a CronJob's Job now."""


@command.command("next", epilog=_NEXT_EPILOG, short_help="Show when a schedule fires")
@click.argument("schedule")
@click.option("--tz", metavar="ZONE", help="The zone it is read in. [default: this machine's]")
@click.option("-n", "count", type=click.IntRange(1, 1000), default=10, show_default=True)
@click.option("--after", metavar="TIME", help="Times after this one. [default: now]")
@output_option("json")
def next_times(
    schedule: str, tz: str | None, count: int, after: str | None, output: str | None
) -> None:
    """Show the next times of SCHEDULE, exactly as the CronJob controller computes them."""
    import msgspec

    from onejob.cli.display.tables import render_table
    from onejob.cli.display.terminal import terminal_of
    from onejob.clock import SystemClock, local_zone
    from onejob.planning.cronjob.schedule import Calendar, ScheduleError, parse_schedule
    from onejob.planning.cronjob.time_zones import load_time_zone, time_zone_error

    zone = tz if tz is not None else local_zone()
    if problem := time_zone_error(zone):
        raise CommandError(f"--tz {zone}: {problem}", "for instance Europe/Berlin or UTC")
    try:
        parsed = parse_schedule(schedule, local=zone)
    except ScheduleError as error:
        raise CommandError(
            f"{schedule!r} is no schedule: {error}", "MIN HOUR DAY MONTH WEEKDAY"
        ) from None
    if isinstance(parsed, Calendar):
        # A TZ= prefix in the text wins.
        zone = parsed.zone
    now = SystemClock().now()
    start = now if after is None else _time(after)
    times = _times(parsed, start, count)
    if not times:
        raise CommandError(f"{schedule!r} never fires", "does the month have that day?")
    local = load_time_zone(zone)
    if output:
        found = [{"utc": t, "local": t.astimezone(local)} for t in times]
        print(msgspec.json.encode({"zone": zone, "times": found}).decode())
        return
    rows = [
        (
            t.astimezone(local).strftime("%a %Y-%m-%d %H:%M:%S %Z"),
            t.strftime("%Y-%m-%dT%H:%M:%SZ"),
            _distance(t, now),
        )
        for t in times
    ]
    for line in render_table((zone.upper(), "UTC", "IN"), rows, terminal_of().width):
        print(line)


@command.command("run", epilog=_RUN_EPILOG, short_help="Run a CronJob's Job now")
@click.argument("what", nargs=-1, metavar="cronjob/NAME")
@client_options
def run_now(what: tuple[str, ...], where: "Sources") -> None:
    """Start the Job of a CronJob now, also while it is suspended; its schedule stays as it is."""
    from onejob.cli.clients.base import get
    from onejob.cli.clients.resource_args import one_resource_arg
    from onejob.cli.clients.writing import create
    from onejob.cli.display.output import resource_name
    from onejob.cli.run.manifests import made_manifest
    from onejob.objects.meta import CRONJOBS
    from onejob.planning.cronjob.manual_jobs import job_of_cronjob, manual_prefix

    arg = one_resource_arg(what, default="cronjob")
    if arg.kind.resource != CRONJOBS:
        raise CommandError(f"{arg} is no CronJob", "name cronjob/NAME")
    api = where.require_server()
    namespace = where.namespace_in(api)
    cronjob = get(api, arg.kind, namespace, arg.name)
    document = job_of_cronjob(cronjob, {"generateName": manual_prefix(arg.name)})
    print(f"{resource_name(create(api, made_manifest(document), namespace))} created")


def _times(schedule: "Schedule", after: datetime, count: int) -> list[datetime]:
    found: list[datetime] = []
    while len(found) < count:
        following = schedule.next(found[-1] if found else after)
        if following is None:
            break
        found.append(following)
    return found


def _time(text: str) -> datetime:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise CommandError(
            f"--after {text}: not a time", "for instance 2030-01-31T12:00:00Z"
        ) from None
    return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)


def _distance(time: datetime, now: datetime) -> str:
    """`in` for people: `3m`, `5h20m`, `2d4h`."""
    seconds = int((time - now).total_seconds())
    sign, seconds = ("-", -seconds) if seconds < 0 else ("", seconds)
    days, rest = divmod(seconds, 86_400)
    hours, rest = divmod(rest, 3_600)
    minutes, seconds = divmod(rest, 60)
    if days:
        return f"{sign}{days}d{hours}h"
    if hours:
        return f"{sign}{hours}h{minutes:02}m"
    return f"{sign}{minutes}m{seconds:02}s" if minutes else f"{sign}{seconds}s"
