"""`onejob cron`: next times of a schedule, manual run, history and backfill of a CronJob."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from onejob.cli.completing import complete_object
from onejob.cli.errors import CommandError
from onejob.cli.options import client_options, output_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onejob.cli.sources.base import Api
    from onejob.cli.sources.selection import Sources
    from onejob.planning.cronjob.history import Fire
    from onejob.planning.cronjob.schedule import Schedule

_EPILOG = """\b
Examples:
  onejob cron next '*/15 9-17 * * MON-FRI'   # the next ten times
  onejob cron next '30 2 * * *' --tz Europe/Berlin -n 3   # in a time zone
  onejob cron next '@every 90m' --after 2030-01-01T00:00:00Z
  onejob cron run cronjob/nightly            # run its Job now
  onejob cron history cronjob/nightly        # results of its last times
  onejob cron backfill nightly --from 2030-01-01 --to 2030-01-08 --dry-run"""

_NEXT_EPILOG = """\b
Examples:
  onejob cron next '0 3 * * *' --tz America/New_York
  onejob cron next '@weekly' -n 3 -o json"""

_RUN_EPILOG = """\b
Examples:
  onejob cron run cronjob/nightly
  onejob cron run nightly -n batch"""

_HISTORY_EPILOG = """\b
Examples:
  onejob cron history cronjob/nightly
  onejob cron history nightly -n batch --last 50 -o json

The history is derived from existing Jobs and Events. Jobs are deleted by the CronJob's history
limits, Events after an hour."""

_BACKFILL_EPILOG = """\b
Examples:
  onejob cron backfill nightly --from 2030-01-01 --to 2030-01-08 --dry-run
  onejob cron backfill nightly --from 2030-01-01 --to 2030-01-02 --queue slow

Jobs are named NAME-backfill-MINUTE, so a repeated call creates only missing ones. They have the
label onejob.dev/backfill=NAME and are not owned by the CronJob: its history limits ignore them."""

#: Limit against mistyped time spans: more Jobs are hardly intended.
_MAX_BACKFILLED_JOBS = 1000


@click.group(epilog=_EPILOG, short_help="Show the times of a schedule, run now, history, backfill")
def command() -> None:
    """Show the times of a schedule and their results, or run the Jobs of a CronJob."""


@command.command("next", epilog=_NEXT_EPILOG, short_help="Show the next times of a schedule")
@click.argument("schedule")
@click.option("--tz", metavar="ZONE", help="Time zone of the schedule. [default: this machine's]")
@click.option(
    "-n",
    "count",
    type=click.IntRange(1, 1000),
    default=10,
    show_default=True,
    metavar="N",
    help="Number of times to show.",
)
@click.option("--after", metavar="TIME", help="Show times after this one. [default: now]")
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
        raise CommandError(f"--tz {zone}: {problem}", "for example Europe/Berlin or UTC")
    try:
        parsed = parse_schedule(schedule, local=zone)
    except ScheduleError as error:
        raise CommandError(
            f"invalid schedule {schedule!r}: {error}", "expected MIN HOUR DAY MONTH WEEKDAY"
        ) from None
    if isinstance(parsed, Calendar):
        # A TZ= prefix in the schedule takes precedence.
        zone = parsed.zone
    now = SystemClock().now()
    start = now if after is None else _time(after, "--after")
    times = _times(parsed, start, count)
    if not times:
        raise CommandError(f"schedule {schedule!r} never fires", "check the day of the month")
    local = load_time_zone(zone)
    if output:
        found = [{"utc": t, "local": t.astimezone(local)} for t in times]
        print(msgspec.json.encode({"zone": zone, "times": found}).decode())
        return
    rows = [
        (
            t.astimezone(local).strftime("%a %Y-%m-%d %H:%M:%S %Z"),
            t.strftime("%Y-%m-%dT%H:%M:%SZ"),
            _relative_time(t, now),
        )
        for t in times
    ]
    for line in render_table((zone.upper(), "UTC", "IN"), rows, terminal_of().width):
        print(line)


@command.command("run", epilog=_RUN_EPILOG, short_help="Run the Job of a CronJob now")
@click.argument("what", nargs=-1, metavar="cronjob/NAME", shell_complete=complete_object)
@client_options
def run_now(what: tuple[str, ...], where: "Sources") -> None:
    """Start the Job of a CronJob now, even if it is suspended. The schedule is not affected."""
    from onejob.cli.display.output import resource_name
    from onejob.cli.manifests.loading import manifest_from_document
    from onejob.cli.manifests.sending import create
    from onejob.planning.cronjob.manual_jobs import job_of_cronjob, manual_prefix

    api, namespace, cronjob = _cronjob(where, what)
    name = {"generateName": manual_prefix(cronjob["metadata"]["name"])}
    document = job_of_cronjob(cronjob, name)
    print(f"{resource_name(create(api, manifest_from_document(document), namespace))} created")


@command.command("history", epilog=_HISTORY_EPILOG, short_help="Show the results of past times")
@click.argument("what", nargs=-1, metavar="cronjob/NAME", shell_complete=complete_object)
@click.option(
    "--last",
    type=click.IntRange(1, 1000),
    default=20,
    show_default=True,
    metavar="N",
    help="Number of times to show.",
)
@output_option("json")
@client_options
def history(what: tuple[str, ...], last: int, output: str | None, where: "Sources") -> None:
    """Show the last times of a CronJob: ran, skipped or missed, and why."""
    import msgspec

    from onejob.cli.display.terminal import terminal_of
    from onejob.cli.sources.cronjobs import read_fires
    from onejob.clock import SystemClock

    api, namespace, cronjob = _cronjob(where, what)
    found = read_fires(api, namespace, cronjob, SystemClock().now(), last)
    if output:
        print(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
        return
    if not found:
        print("The schedule has not fired yet.")
        return
    for line in history_lines(found, terminal_of().width):
        print(line)


@command.command(
    "backfill", epilog=_BACKFILL_EPILOG, short_help="Create missing Jobs of past times"
)
@click.argument("what", nargs=-1, metavar="cronjob/NAME", shell_complete=complete_object)
@click.option(
    "--from", "begin", required=True, metavar="TIME", help="Start of the period (exclusive)."
)
@click.option("--to", "until", required=True, metavar="TIME", help="End of the period (inclusive).")
@click.option("--queue", default="", metavar="NAME", help="Put the Jobs into this queue.")
@click.option("--dry-run", is_flag=True, help="Print the Jobs without creating them.")
@client_options
def backfill(
    what: tuple[str, ...], begin: str, until: str, queue: str, dry_run: bool, where: "Sources"
) -> None:
    """Create the missing Jobs of a CronJob for a past period of its schedule."""
    from onejob.cli.manifests.loading import manifest_from_document
    from onejob.cli.manifests.sending import create
    from onejob.cli.sources.cronjobs import backfill_jobs, existing_jobs

    first, last = _time(begin, "--from"), _time(until, "--to")
    if last <= first:
        raise CommandError(f"--to {until} is not after --from {begin}")
    api, namespace, cronjob = _cronjob(where, what)
    wanted = backfill_jobs(cronjob, first, last, queue, most=_MAX_BACKFILLED_JOBS + 1)
    if len(wanted) > _MAX_BACKFILLED_JOBS:
        raise CommandError(
            f"the period contains more than {_MAX_BACKFILLED_JOBS} times",
            "use several shorter periods",
        )
    if not wanted:
        raise CommandError("the schedule does not fire in this period")
    there = existing_jobs(api, namespace)
    for slot, document in wanted:
        name = document["metadata"]["name"]
        at = slot.strftime("%Y-%m-%dT%H:%M:%SZ")
        if name in there:
            print(f"job.batch/{name} exists ({at})")
            continue
        if not dry_run:
            create(api, manifest_from_document(document), namespace)
        print(f"job.batch/{name} {'would be ' if dry_run else ''}created ({at})")


def _cronjob(where: "Sources", what: tuple[str, ...]) -> "tuple[Api, str, dict[str, Any]]":
    """Return the server, and the CronJob's namespace and document."""
    from onejob.cli.resource_args import one_resource_arg
    from onejob.cli.sources.base import get
    from onejob.objects.meta import CRONJOBS

    arg = one_resource_arg(what, default="cronjob")
    if arg.kind.resource != CRONJOBS:
        raise CommandError(f"{arg} is not a CronJob", "name cronjob/NAME")
    api = where.require_server()
    namespace = where.namespace_in(api)
    return api, namespace, get(api, arg.kind, namespace, arg.name)


def history_lines(fires: "Sequence[Fire]", width: int) -> list[str]:
    from onejob.cli.display.tables import fits, render_table

    headers: tuple[str, ...] = ("SCHEDULED", "STATE", "JOB", "LASTED", "WHY")
    rows: list[tuple[str, ...]] = [
        (
            fire.slot.strftime("%Y-%m-%dT%H:%M:%SZ"),
            fire.state,
            fire.job,
            _duration_text(fire.started_at, fire.finished_at),
            fire.why,
        )
        for fire in fires
    ]
    if fits([headers, *rows], width):
        return render_table(headers, rows, width)
    # The reasons are the point of the history: list them below the table, once each, rather than
    # truncate them.
    reasons = dict.fromkeys(f"{fire.state}: {fire.why}" for fire in fires if fire.why)
    return [*render_table(headers[:-1], [row[:-1] for row in rows], width), "", *reasons]


def _duration_text(begin: datetime | None, end: datetime | None) -> str:
    from onejob.api.kinds.printing import human_duration

    return human_duration((end - begin).total_seconds()) if begin and end else ""


def _times(schedule: "Schedule", after: datetime, count: int) -> list[datetime]:
    found: list[datetime] = []
    while len(found) < count:
        following = schedule.next(found[-1] if found else after)
        if following is None:
            break
        found.append(following)
    return found


def _time(text: str, option: str) -> datetime:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise CommandError(
            f"{option} {text}: not a time", "for example 2030-01-31T12:00:00Z"
        ) from None
    return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)


def _relative_time(time: datetime, now: datetime) -> str:
    from onejob.api.kinds.printing import human_duration

    seconds = (time - now).total_seconds()
    return human_duration(seconds) if seconds >= 0 else f"{human_duration(-seconds)} ago"
