"""Notification annotations: targets and events.

The Job's annotation takes precedence over its CronJob's, and that over its namespace's. It only
names targets, which are defined in the server's configuration.
"""

from collections.abc import Mapping, Set
from typing import Final

from msgspec import Struct

from onejob.wire.names import label_errors

NOTIFY_ANNOTATION: Final = "onejob.dev/notify"
#: Annotation of the same object: only these events, instead of the target's.
NOTIFY_ON_ANNOTATION: Final = "onejob.dev/notify-on"
#: Seconds. On a Job: it is late if it has not finished this long after its creation. On a CronJob:
#: it is late if none of its Jobs has succeeded this long after a scheduled time.
LATE_AFTER_ANNOTATION: Final = "onejob.dev/late-after-seconds"

FAILED: Final = "failed"
FINISHED: Final = "finished"
LATE: Final = "late"
RECOVERED: Final = "recovered"
EVENTS: Final = (FAILED, FINISHED, LATE, RECOVERED)
#: Events of a target that configures none.
USUAL_EVENTS: Final = frozenset((FAILED, LATE, RECOVERED))

_MAX_TARGETS: Final = 10
_MAX_QUOTED_LENGTH: Final = 63


class Subscription(Struct, frozen=True):
    targets: tuple[str, ...] = ()
    #: None: use the events configured for each target.
    events: frozenset[str] | None = None
    #: Human-readable errors in the annotations.
    problems: tuple[str, ...] = ()

    def wants(self, event: str, usual: Set[str]) -> bool:
        """Return whether the subscription includes the event; `usual` is the default."""
        return event in (usual if self.events is None else self.events)


def effective_subscription(*annotations: Mapping[str, str]) -> Subscription | None:
    """Return the settings of the first of these annotations (Job, CronJob, namespace) that has any.

    An empty value disables notifications, so that a single Job can be excluded.
    """
    for found in annotations:
        if NOTIFY_ANNOTATION in found:
            return read_subscription(found)
    return None


def read_subscription(annotations: Mapping[str, str]) -> Subscription:
    problems: list[str] = []
    targets = _items(annotations.get(NOTIFY_ANNOTATION, ""))
    if len(targets) > _MAX_TARGETS:
        problems.append(f"{NOTIFY_ANNOTATION} names more than {_MAX_TARGETS} targets")
        targets = targets[:_MAX_TARGETS]
    problems += [
        f"{NOTIFY_ANNOTATION}: {_quote(name)} is not a valid target name"
        for name in targets
        if label_errors(name)
    ]
    events: frozenset[str] | None = None
    if NOTIFY_ON_ANNOTATION in annotations:
        named = _items(annotations[NOTIFY_ON_ANNOTATION])
        problems += [
            f"{NOTIFY_ON_ANNOTATION}: {_quote(name)} is not one of {', '.join(EVENTS)}"
            for name in named
            if name not in EVENTS
        ]
        events = frozenset(named) & frozenset(EVENTS)
    usable = tuple(name for name in targets if not label_errors(name))
    return Subscription(usable, events, tuple(problems))


def unknown_targets(subscription: Subscription, known: Set[str]) -> tuple[str, ...]:
    return tuple(name for name in subscription.targets if name not in known)


def _items(text: str) -> list[str]:
    """Split at commas and remove duplicates.

    A line break does not separate; it makes the name invalid.
    """
    return list(dict.fromkeys(item.strip(" ") for item in text.split(",") if item.strip(" ")))


def _quote(text: str) -> str:
    """Return a text in quotes, shortened."""
    return repr(text if len(text) <= _MAX_QUOTED_LENGTH else f"{text[:_MAX_QUOTED_LENGTH]}…")
