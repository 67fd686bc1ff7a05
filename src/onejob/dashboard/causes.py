"""Causes of the states of several Jobs, for the rows of a list.

A cause is taken from the summary of its Job, with the last line of the log of a failed Pod.
"""

from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, cast

from onejob.api.sessions.pod_streams import LogSource
from onejob.client.base import Client
from onejob.dashboard.summaries import Summaries
from onejob.diagnosis.causes import Cause, PodFailure, cause_of_job
from onejob.objects.job import read_job
from onejob.objects.meta import PODS, Key
from onejob.wire.errors import ApiError, NotFound
from onejob.wire.requests import LogOptions

if TYPE_CHECKING:
    from onejob.dashboard.job_pods import Failure
    from onejob.planning.history import PodRecord

#: Upper bound on the part of a log that is read for its last line.
_LINE_BYTES: Final = 2000


class Causes:
    """Causes of Jobs' states."""

    def __init__(self, client: Client, summaries: Summaries, logs: LogSource | None) -> None:
        self._client = client
        self._summaries = summaries
        self._logs = logs

    async def of(
        self, keys: Iterable[Key], may_read_log: Callable[[Key], bool]
    ) -> dict[str, Cause]:
        """Return the cause of each Job by `NAMESPACE/NAME`; Jobs that do not exist are left out.

        `may_read_log` returns whether the user may read the log of a Pod.
        """
        found = {}
        for key in keys:
            try:
                found[f"{key.namespace}/{key.name}"] = await self._cause(key, may_read_log)
            except NotFound:
                continue
        return found

    async def _cause(self, key: Key, may_read_log: Callable[[Key], bool]) -> Cause:
        job = read_job(await self._client.get(key))
        summary = await self._summaries.job(key)
        return cause_of_job(
            job,
            summary["cause"],
            summary["evidence"],
            await self._failure(key.namespace, summary, may_read_log),
            blocked=summary["blocked"],
        )

    async def _failure(
        self, namespace: str, summary: dict[str, Any], may_read_log: Callable[[Key], bool]
    ) -> PodFailure | None:
        """Return the most frequent failure; that of a deleted Pod if no other is known."""
        failures: list[Failure] = summary["failures"]
        for failure in failures[:1]:
            pod = Key(PODS, namespace, failure.pods[0])
            line = await self._last_line(pod, failure.container) if may_read_log(pod) else ""
            return PodFailure(failure.exit_code, failure.reason, failure.message, line)
        records: list[PodRecord] = summary["deletedPods"]
        for record in records:
            if record.phase == "Failed":
                return PodFailure(record.exit_code, record.reason, record.message)
        return None

    async def _last_line(self, pod: Key, container: str) -> str:
        """Return the last line of a log that is not empty; "" if there is none."""
        if self._logs is None or not container:
            return ""
        options = LogOptions(tail_lines=5, limit_bytes=_LINE_BYTES)
        try:
            pieces = await self._logs.logs(pod.namespace, pod.name, container, options)
            async with aclosing(cast("AsyncGenerator[bytes, None]", pieces)):
                text = b"".join([piece async for piece in pieces]).decode(errors="replace")
        except ApiError:
            # The log, or the Pod, was removed meanwhile.
            return ""
        return next((line for line in reversed(text.splitlines()) if line.strip()), "")
