"""Progress that containers report: `n/total [text]` lines, their sum and the estimated end."""

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from onejob.objects.meta import View

_LINE: Final = re.compile(r"\s*(\d{1,15})\s*/\s*(\d{1,15})(?:\s+(.*))?$")
_MAX_TEXT: Final = 100


class PodProgress(View, frozen=True):
    """Last progress line of one Pod."""

    pod: str
    done: int
    total: int
    text: str = ""
    index: int | None = None
    started_at: datetime | None = None


class JobProgress(View, frozen=True):
    """Sum of the progress of a Job's Pods."""

    done: int = 0
    total: int = 0
    text: str = ""
    #: Seconds until the end at the present rate; None if unknown.
    seconds_left: int | None = None
    pods: tuple[PodProgress, ...] = ()


def parse_progress(content: str) -> tuple[int, int, str] | None:
    """Return the last valid line: done, total and text. None if there is none.

    Control characters are removed from the text, which is printed to terminals.
    """
    for line in reversed(content.splitlines()):
        match = _LINE.match(line)
        if match is not None and int(match[2]) > 0:
            total = int(match[2])
            text = "".join(letter for letter in match[3] or "" if letter.isprintable())
            return min(int(match[1]), total), total, text.strip()[:_MAX_TEXT]
    return None


def sum_up(pods: Sequence[PodProgress], now: datetime, shown: int = 100) -> JobProgress:
    """Return the Job's progress: at most `shown` Pods, the least advanced ones first."""
    done, total = sum(pod.done for pod in pods), sum(pod.total for pod in pods)
    begun = [pod.started_at for pod in pods if pod.started_at is not None]
    left = None
    if begun and done:
        elapsed = (now - min(begun)).total_seconds()
        left = max(0, round(elapsed / done * (total - done)))
    newest = max(pods, key=lambda pod: (pod.started_at is not None, pod.started_at), default=None)
    ordered = sorted(pods, key=lambda pod: pod.done / pod.total)
    return JobProgress(
        done=done,
        total=total,
        text="" if newest is None else newest.text,
        seconds_left=left,
        pods=tuple(ordered[:shown]),
    )


def progress_bar(progress: JobProgress, width: int = 20) -> str:
    """Return a bar with counts, percentage and the time left."""
    filled = width * progress.done // progress.total if progress.total else 0
    percent = 100 * progress.done // progress.total if progress.total else 0
    bar = "█" * filled + "░" * (width - filled)
    left = ""
    if progress.seconds_left is not None and progress.done < progress.total:
        left = f", {timedelta(seconds=progress.seconds_left)} left"
    text = f" {progress.text}" if progress.text else ""
    bar += " " if bar else ""
    return f"{bar}{progress.done}/{progress.total} ({percent}%{left}){text}"
