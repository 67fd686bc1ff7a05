"""Concurrency limits of Jobs: overall, per namespace and per queue."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct, field

from onejob.objects.job import Job

QUEUE_LABEL: Final = "onejob.dev/queue"

#: ConfigMap with the limits of a server, and the key of its data that holds them.
LIMITS_NAMESPACE: Final = "kube-system"
LIMITS_NAME: Final = "onejob-queues"
LIMITS_KEY: Final = "limits"

_ALL: Final = "*"
_NAMESPACE: Final = "namespace/"
_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_NUMBER: Final = re.compile(r"[0-9]{1,9}")


class BadLimits(ValueError):
    """Invalid limits; the message has the reason."""


class Limits(Struct, frozen=True):
    """Limits by scope, in the written form: `*`, `namespace/NAME`, or the name of a queue."""

    by_scope: Mapping[str, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.by_scope)

    def scopes_of(self, job: Job) -> tuple[str, ...]:
        """Return the scopes of the Job that have a limit."""
        if not self.by_scope:
            return ()
        return tuple(scope for scope in _possible_scopes(job) if scope in self.by_scope)

    def __str__(self) -> str:
        return "".join(f"{scope}={limit}\n" for scope, limit in self.by_scope.items())


def parse_limits(items: Iterable[str]) -> Limits:
    """Parse `*=5`, `namespace/team-a=3`, `gpu=2`; the last value for a scope wins.

    Raises `BadLimits`.
    """
    limits: dict[str, int] = {}
    for item in filter(None, map(str.strip, items)):
        scope, equals, number = (part.strip() for part in item.partition("="))
        name = scope.removeprefix(_NAMESPACE)
        if not equals or not _NUMBER.fullmatch(number) or not (_is_name(name) or scope == _ALL):
            raise BadLimits(
                f"invalid limit {item[:100]!r}: expected QUEUE=N, namespace/NAME=N or *=N, "
                "where N is the maximum number of running Jobs"
            )
        limits[scope] = int(number)
    return Limits(limits)


def read_limits(text: str) -> Limits:
    """Parse the ConfigMap's value, separated by commas or lines. Raises `BadLimits`."""
    return parse_limits(re.split(r"[,\n]", text))


def scope_text(scope: str) -> str:
    """Return the scope's description for messages."""
    if scope == _ALL:
        return "all Jobs"
    if scope.startswith(_NAMESPACE):
        return f"namespace {scope.removeprefix(_NAMESPACE)}"
    return f"queue {scope}"


def _possible_scopes(job: Job) -> Iterable[str]:
    yield _ALL
    yield _NAMESPACE + job.metadata.namespace
    queue = job.metadata.labels.get(QUEUE_LABEL)
    if queue:
        yield queue


def _is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None
