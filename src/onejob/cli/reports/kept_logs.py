"""Logs of deleted Pods, read from the data dir without a running server."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TextIO

import msgspec

from onejob.cli.display.tables import render_table
from onejob.cli.display.terminal import terminal_of
from onejob.cli.errors import EXIT_FAILED, EXIT_OK, CommandError
from onejob.cli.kept_runs import find_run, kept_runs
from onejob.cli.reports.log_reading import LogQuery, Reading, head_of, whole_lines
from onejob.cli.resource_args import ResourceArg
from onejob.cli.sources.selection import Sources
from onejob.clock import SystemClock
from onejob.diagnosis.durations import short_seconds
from onejob.node.logs.keeping import KeptPod, kept_attempts, kept_pods
from onejob.node.logs.reading import read_logs
from onejob.objects.meta import CRONJOBS, JOBS, PODS
from onejob.wire.requests import LogOptions


class Kept(msgspec.Struct, frozen=True):
    pod: KeptPod
    folder: Path


def list_kept(where: Sources) -> int:
    """Print a table of the deleted Pods with kept logs, the most recently deleted first."""
    now = SystemClock().now()
    rows = [
        (
            kept.pod.namespace,
            kept.pod.name,
            f"{kept.pod.owner_kind.lower()}/{kept.pod.owner_name}" if kept.pod.owner_kind else "",
            ",".join(kept_attempts(kept.folder)),
            f"{short_seconds((now - kept.pod.deleted_at).total_seconds())} ago",
        )
        for kept in reversed(list(_all_kept(where)))
    ]
    if not rows:
        raise CommandError("no kept logs of deleted Pods", exit_code=EXIT_FAILED)
    headers = ("NAMESPACE", "POD", "OF", "CONTAINERS", "DELETED")
    for line in render_table(headers, rows, terminal_of().width, whole=2):
        print(line)
    return EXIT_OK


def find_kept(where: Sources, arg: ResourceArg) -> Sequence[Kept]:
    """Return the kept logs of a Pod, or of all Pods of a Job or CronJob, oldest first.

    Several Pods that had the same name are all included. Raises CommandError if there are none.
    """
    if arg.kind.resource not in (PODS, JOBS, CRONJOBS):
        raise CommandError(f"{arg.kind.kind}s have no logs", "specify a Pod, a Job or a CronJob")
    found = [kept for kept in _all_kept(where) if _matches_owner(kept.pod, arg)]
    if not found:
        raise CommandError(
            f"no kept logs of {arg} found",
            "onejob logs --deleted lists all",
            exit_code=EXIT_FAILED,
        )
    return found


def has_kept(where: Sources, arg: ResourceArg) -> bool:
    """Return whether logs of this object are kept.

    False with --kubeconfig, because the data dir of a remote server cannot be read.
    """
    return where.kubeconfig is None and any(
        _matches_owner(kept.pod, arg) for kept in _all_kept(where)
    )


def print_kept(
    found: Sequence[Kept],
    container: str,
    query: LogQuery,
    stream: TextIO,
    *,
    prefix: bool | None,
) -> int:
    readings = [
        reading for kept in found for reading in _select_attempts(kept, container, query.previous)
    ]
    if not readings:
        what = f"container {container}" if container else "it"
        raise CommandError(f"no logs of {what} found", exit_code=EXIT_FAILED)
    several = len({reading.container for reading, _ in readings}) > 1
    shows_prefix = len(readings) > 1 if prefix is None else prefix
    for number, (reading, path) in enumerate(readings):
        head = head_of(reading, number, several=several) if shows_prefix else ""
        for line in whole_lines(_read_lines(path, query)):
            if query.shows(line):
                stream.write(f"{head}{line}")
    return EXIT_OK


def _all_kept(where: Sources) -> Iterator[Kept]:
    if where.kubeconfig is not None:
        raise CommandError(
            "logs of deleted Pods are available only in the server's data directory",
            "run the command there, without --kubeconfig",
        )
    for data_dir in _data_dirs(where):
        for pod, folder in kept_pods(data_dir):
            if where.namespace in ("", pod.namespace):
                yield Kept(pod, folder)


def _data_dirs(where: Sources) -> Iterator[Path]:
    """Yield the data dirs of the server and of the kept runs, oldest first."""
    runs = where.data_dir.runs
    if where.run:
        yield find_run(runs, where.run)[0]
        return
    if not where.only_runs:
        yield where.data_dir.server
    yield from reversed([folder for folder, _ in kept_runs(runs)])


def _matches_owner(pod: KeptPod, arg: ResourceArg) -> bool:
    """Return whether the Pod is, or belongs to, the named object."""
    if arg.kind.resource == PODS:
        return pod.name == arg.name
    if pod.owner_kind != "Job":
        return False
    if arg.kind.resource == JOBS:
        return pod.owner_name == arg.name
    # The CronJob controller names Jobs `<cronjob>-<minute>`.
    cronjob, _, minute = pod.owner_name.rpartition("-")
    return cronjob == arg.name and minute.isdigit()


def _select_attempts(kept: Kept, container: str, previous: bool) -> Iterator[tuple[Reading, Path]]:
    """Yield the log files to print, with their labels."""
    wanted = 2 if previous else 1
    for name, attempts in kept_attempts(kept.folder).items():
        if container in ("", name) and len(attempts) >= wanted:
            yield Reading(kept.pod.namespace, kept.pod.name, name), attempts[-wanted]


def _read_lines(path: Path, query: LogQuery) -> Iterator[bytes]:
    async def read(text: AsyncIterator[bytes]) -> list[bytes]:
        return [piece async for piece in text]

    options = LogOptions(
        timestamps=query.timestamps,
        tail_lines=query.tail_lines if query.tail_lines >= 0 else None,
        limit_bytes=query.limit_bytes,
        since_seconds=None if query.since_seconds is None else max(1, round(query.since_seconds)),
        since_time=_time(query.since_time),
    )
    text = read_logs(path, options, SystemClock().now(), lambda: False)
    yield from asyncio.run(read(text))


def _time(text: str) -> datetime | None:
    if not text:
        return None
    try:
        time = msgspec.convert(text, datetime)
    except msgspec.ValidationError:
        time = None
    if time is None or time.tzinfo is None:
        raise CommandError(
            f"--since-time {text}: expected a time, for example 2026-01-31T12:00:00Z"
        )
    return time
