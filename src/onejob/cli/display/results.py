"""Results of a Job: parameters, outcome and result, one row per index."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from onejob.objects.pod import read_pod
from onejob.planning.job.indexes import read_index
from onejob.planning.job.pod_facts import failures_of_pod
from onejob.planning.names import INDEX_ANNOTATION

Document = Mapping[str, Any]


class Result(msgspec.Struct, frozen=True):
    #: None for Jobs without indexes.
    index: int | None
    pod: str
    #: Number of Pods tried for this index.
    attempts: int
    params: Mapping[str, str]
    #: Pending, Running, Succeeded or Failed.
    state: str
    exit_code: int | None = None
    signal: int | None = None
    started: datetime | None = None
    finished: datetime | None = None
    #: Content that the program wrote to $ONEJOB_RESULT.
    text: str = ""

    @property
    def seconds(self) -> float | None:
        if self.started is None or self.finished is None:
            return None
        return max(0.0, (self.finished - self.started).total_seconds())

    @property
    def value(self) -> Any:
        """The result decoded from JSON if possible, else its text."""
        try:
            return msgspec.json.decode(self.text)
        except msgspec.DecodeError:
            return self.text.rstrip("\n")


def collect(pods: Iterable[Document], rows: Sequence[Mapping[str, str]]) -> list[Result]:
    """Return a result per index, from its succeeded or last Pod, sorted by index.

    A Job without indexes has a result per Pod.
    """
    groups: dict[Any, list[Document]] = {}
    for pod in sorted(pods, key=_age):
        index = _index(pod)
        groups.setdefault(pod["metadata"]["name"] if index is None else index, []).append(pod)
    found = [_result(group, rows) for group in groups.values()]
    return sorted(found, key=_order)


def renumbered(results: Iterable[Result], origins: Sequence[int]) -> list[Result]:
    """Return the results with each index replaced by the original Job's index (`origins`)."""
    return [
        replace(result, index=origins[result.index])
        for result in results
        if result.index is not None and result.index < len(origins)
    ]


def merged(parts: Iterable[Iterable[Result]]) -> list[Result]:
    """Merge the results of several Jobs, oldest Job first.

    The last result of each index is kept, with attempts summed.
    """
    newest: dict[int | str, Result] = {}
    for part in parts:
        for result in part:
            key = result.pod if result.index is None else result.index
            before = newest.get(key)
            attempts = result.attempts + (before.attempts if before else 0)
            newest[key] = replace(result, attempts=attempts)
    return sorted(newest.values(), key=_order)


def _order(result: Result) -> tuple[int, bool, str]:
    return result.index or 0, result.started is None, result.pod


def _age(pod: Document) -> tuple[str, str]:
    metadata = pod["metadata"]
    return metadata.get("creationTimestamp", ""), metadata["name"]


def _index(pod: Document) -> int | None:
    text = pod["metadata"].get("annotations", {}).get(INDEX_ANNOTATION)
    return read_index(text)


def _result(group: Sequence[Document], rows: Sequence[Mapping[str, str]]) -> Result:
    # A success counts, even if a later Pod of the same index failed.
    pod = next((pod for pod in group if _phase(pod) == "Succeeded"), group[-1])
    index = _index(pod)
    ended = _termination(pod)
    code = ended.get("exitCode")
    return Result(
        index=index,
        pod=pod["metadata"]["name"],
        attempts=len(group),
        params=rows[index] if index is not None and index < len(rows) else {},
        state=_phase(pod),
        exit_code=code,
        signal=ended.get("signal"),
        started=_time(ended, "startedAt"),
        finished=_time(ended, "finishedAt"),
        text=ended.get("message", ""),
    )


def _phase(pod: Document) -> str:
    phase: str = pod.get("status", {}).get("phase", "Pending")
    return phase


def _termination(pod: Document) -> Document:
    """Return the terminated state of a container; {} if none has ended.

    Of several it is the first that failed, else the first with a result.
    """
    ends: dict[str, Document] = {
        report["name"]: end
        for report in pod.get("status", {}).get("containerStatuses", ())
        if (end := report.get("state", {}).get("terminated"))
    }
    names = (status.name for status in failures_of_pod(read_pod(msgspec.json.encode(pod))))
    failed = [ends[name] for name in names if name in ends]
    telling = [end for end in ends.values() if end.get("message")]
    return next(iter((*failed, *telling, *ends.values())), {})


def _time(end: Document, field: str) -> datetime | None:
    text = end.get(field)
    return datetime.fromisoformat(text) if text else None


def as_table(results: Sequence[Result]) -> tuple[list[str], list[list[str]]]:
    """Return headers and rows, for display and for CSV."""
    names = list(dict.fromkeys(name for result in results for name in result.params))
    headers = ["INDEX", *names, "STATE", "EXIT", "SECONDS", "TRIES", "RESULT"]
    rows = [
        [
            "" if result.index is None else str(result.index),
            *(result.params.get(name, "") for name in names),
            result.state,
            "" if result.exit_code is None else str(result.exit_code),
            "" if result.seconds is None else f"{result.seconds:g}",
            str(result.attempts),
            result.text.rstrip("\n"),
        ]
        for result in results
    ]
    return headers, rows


def as_csv(results: Sequence[Result]) -> str:
    headers, rows = as_table(results)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([header.lower() if header.isupper() else header for header in headers])
    writer.writerows(rows)
    return out.getvalue()


def as_json(results: Sequence[Result]) -> str:
    documents = [
        {
            "index": result.index,
            "params": result.params,
            "state": result.state,
            "exitCode": result.exit_code,
            "startedAt": result.started,
            "finishedAt": result.finished,
            "attempts": result.attempts,
            "pod": result.pod,
            "result": result.value,
        }
        for result in results
    ]
    return msgspec.json.format(msgspec.json.encode(documents), indent=2).decode() + "\n"


def as_joblog(results: Sequence[Result], command: str) -> str:
    """Return the results in the format of `parallel --joblog`.

    Bytes sent and received are unknown, and written as 0.
    """
    lines = ["Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\tExitval\tSignal\tCommand"]
    for number, result in enumerate(results, 1):
        if result.started is None or result.seconds is None:
            continue
        given = " ".join(f"{name}={value}" for name, value in result.params.items())
        cells: tuple[object, ...] = (
            number if result.index is None else result.index + 1,
            ":",
            f"{result.started.timestamp():.3f}",
            f"{result.seconds:10.3f}",
            0,
            0,
            result.exit_code,
            result.signal or 0,
            f"{given} {command}".strip(),
        )
        lines.append("\t".join(map(str, cells)))
    return "\n".join(lines) + "\n"
