"""Queue and mirror summaries for the dashboard.

Both are computed from all Jobs. The queue is cached for a moment, longer the more Jobs there are,
and shared by all requests.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import msgspec

from onejob.client.base import Client, Selection
from onejob.clock import Clock
from onejob.controllers.queueing.config import LIMITS, fetch_limits
from onejob.dashboard.job_lists import job_documents
from onejob.diagnosis.mirrors import describe_targets, is_mirrored
from onejob.diagnosis.queues import queue_document
from onejob.objects.job import read_job
from onejob.objects.meta import Key
from onejob.planning.mirror.names import MANAGER, TARGET_LABEL
from onejob.planning.queue.forecast import Entry, forecast, scopes
from onejob.planning.queue.limits import BadLimits, Limits
from onejob.planning.queue.membership import PRIORITY_CLASSES, Priorities, read_priority_class

Document: TypeAlias = dict[str, Any]

SECRETS: Final = "secrets"
_FRESH_SECONDS: Final = 1.0
_JOBS_PER_SECOND: Final = 2000


class Queues:
    """Summaries of queues and mirror targets, reused for a moment."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._entries: list[Entry] = []
        self._limits = Limits()
        self._problem = ""
        self._good_until = float("-inf")
        self._reading = asyncio.Lock()
        #: Number of times that all Jobs were read, for tests.
        self.made = 0

    async def queue(self, namespace: str, may_get: Callable[[Key], bool]) -> Document:
        """Return the queue as a document.

        Positions and times refer to the queue of all Jobs. For one namespace, only its Jobs are
        listed, and only the limits that apply to them. An error in the ConfigMap of the limits
        quotes it, so the text is included only if `may_get` allows reading it.
        """
        async with self._reading:
            if self._clock.monotonic() >= self._good_until:
                await self._read()
        used = scopes(self._entries, self._limits)
        entries = self._entries
        if namespace:
            entries = [one for one in entries if one.job.metadata.namespace == namespace]
            applied = {name for entry in entries for name in entry.scopes}
            used = [scope for scope in used if scope.name in applied]
        problem = ""
        if self._problem:
            problem = f"configmap {LIMITS.namespace}/{LIMITS.name}"
            problem += f": {self._problem}" if may_get(LIMITS) else " (no permission to read it)"
        return {**queue_document(entries, used), "problem": problem}

    async def _read(self) -> None:
        """Read limits and priority classes again."""
        self.made += 1
        limits, problem = self._limits, ""
        try:
            limits = await fetch_limits(self._client)
        except BadLimits as error:
            problem = str(error)
        classes = (await self._client.list(Selection(PRIORITY_CLASSES))).documents
        priorities = Priorities.of(read_priority_class(one) for one in classes)
        jobs = [
            read_job(document)
            for document in await job_documents(self._client, "", lambda document: True)
        ]
        self._entries = [*forecast(jobs, limits, priorities, self._clock.now())]
        self._limits, self._problem = limits, problem
        self._good_until = self._clock.monotonic() + _FRESH_SECONDS + len(jobs) / _JOBS_PER_SECOND

    async def mirrors(self, namespace: str) -> Document:
        """Return the state of all mirrored Jobs of a namespace."""
        marker = MANAGER.encode()
        found = await job_documents(self._client, namespace, lambda one: marker in one)
        jobs = [msgspec.json.decode(document) for document in found]
        chosen = Selection(SECRETS, namespace, labels=TARGET_LABEL)
        secrets = (await self._client.list(chosen)).documents
        decoded = [msgspec.json.decode(secret) for secret in secrets]
        return {"targets": describe_targets(decoded, [job for job in jobs if is_mirrored(job)])}
