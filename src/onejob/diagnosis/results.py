"""Results of a Job: parameters, outcome, usage and result, one per index. Pure."""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from onejob.objects.pod import read_pod
from onejob.planning.job.indexes import read_index
from onejob.planning.job.parameter_rows import ROW_IS_SET
from onejob.planning.job.pod_facts import failures_of_pod
from onejob.planning.names import INDEX_ANNOTATION

Document = Mapping[str, Any]

#: Indexes above which those that were never run are not listed one by one.
_MAX_LISTED: Final = 100_000
#: End of the generated script of a sweep, in front of the command.
_EXEC: Final = "exec "
_VARIABLE: Final = re.compile(r'"\$([A-Za-z_][A-Za-z0-9_]*)"')


class Result(msgspec.Struct, frozen=True):
    #: None for Jobs without indexes.
    index: int | None
    pod: str
    #: Number of Pods tried for this index.
    attempts: int
    params: Mapping[str, str]
    #: Pending, Running, Succeeded, Failed, or NotRun without a Pod.
    state: str
    exit_code: int | None = None
    signal: int | None = None
    started: datetime | None = None
    finished: datetime | None = None
    #: Content that the program wrote to $ONEJOB_RESULT.
    text: str = ""
    #: Measured duration, CPU time and peak memory; None without a measurement.
    measured_seconds: float | None = None
    cpu_seconds: float | None = None
    peak_bytes: int | None = None
    #: Command line with the values of the parameters; "" if it is unknown.
    command: str = ""

    @property
    def seconds(self) -> float | None:
        if self.measured_seconds is not None:
            return self.measured_seconds
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


def with_missing(
    results: Sequence[Result], rows: Sequence[Mapping[str, str]], completions: int | None
) -> list[Result]:
    """Add a result in state NotRun for each index that never had a Pod."""
    count = len(rows) or completions or 0
    if count > _MAX_LISTED:
        return list(results)
    known = {result.index for result in results}
    missing = [
        Result(index, "", 0, rows[index] if index < len(rows) else {}, "NotRun")
        for index in range(count)
        if index not in known
    ]
    return sorted([*results, *missing], key=_order)


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
            if before and result.state == "NotRun":
                # A resume has not reached this index: its earlier result stands.
                continue
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
    params = rows[index] if index is not None and index < len(rows) else {}
    milliseconds = ended.get("durationMilliseconds")
    peaks = [end["peakMemoryBytes"] for end in _ends(pod) if "peakMemoryBytes" in end]
    return Result(
        index=index,
        pod=pod["metadata"]["name"],
        attempts=len(group),
        params=params,
        state=_phase(pod),
        exit_code=code,
        signal=ended.get("signal"),
        started=_time(ended, "startedAt"),
        finished=_time(ended, "finishedAt"),
        text=ended.get("message", ""),
        measured_seconds=None if milliseconds is None else milliseconds / 1000,
        cpu_seconds=(
            sum(end.get("cpuMilliseconds", 0) for end in _ends(pod)) / 1000 if peaks else None
        ),
        peak_bytes=sum(peaks) if peaks else None,
        command=_command(pod, index, params),
    )


def _ends(pod: Document) -> list[Document]:
    """Return the terminated states of the containers."""
    return [
        end
        for report in pod.get("status", {}).get("containerStatuses", ())
        if (end := report.get("state", {}).get("terminated"))
    ]


def _command(pod: Document, index: int | None, params: Mapping[str, str]) -> str:
    """Return the command line of the first container, as the user would type it."""
    container: Document = next(iter(pod.get("spec", {}).get("containers", ())), {})
    words = [*container.get("command", ()), *container.get("args", ())]
    if not params or len(words) != 3:
        return shlex.join(map(str, words))
    line = str(words[2]).partition(ROW_IS_SET)[2].partition(_EXEC)[2]
    values = {**params, "JOB_COMPLETION_INDEX": str(index)}
    return _VARIABLE.sub(lambda m: shlex.quote(str(values.get(m[1], m[0]))), line)


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
