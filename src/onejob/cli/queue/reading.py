"""Queue of a server or of a kept run, computed from its objects."""

from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from onejob.cli.sources.base import get, list_all
from onejob.objects.job import read_job
from onejob.objects.meta import JOBS
from onejob.planning.queue.forecast import Entry, forecast
from onejob.planning.queue.limits import (
    LIMITS_KEY,
    LIMITS_NAME,
    LIMITS_NAMESPACE,
    BadLimits,
    Limits,
    read_limits,
)
from onejob.planning.queue.membership import PRIORITY_CLASSES, Priorities, read_priority_class
from onejob.wire.errors import Forbidden, NotFound
from onejob.wire.kinds import BY_RESOURCE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from onejob.cli.sources.base import Api


def read_queue(
    api: "Api", now: datetime, note: "Callable[[str], None]", namespace: str = ""
) -> "tuple[Limits, Sequence[Entry]]":
    """Return limits and forecast over all namespaces, because one limit may apply to all of them.

    A user who may list only the Jobs of `namespace` gets those. `note` receives a message for each
    object that cannot be read.
    """
    limits = _limits(api, note)
    try:
        documents = list_all(api, BY_RESOURCE[JOBS], "")
    except Forbidden:
        if not namespace:
            raise
        note("Jobs of other namespaces cannot be listed: they are not in the order below")
        documents = list_all(api, BY_RESOURCE[JOBS], namespace)
    jobs = [read_job(msgspec.json.encode(document)) for document in documents]
    return limits, forecast(jobs, limits, _priorities(api, note), now)


def _limits(api: "Api", note: "Callable[[str], None]") -> Limits:
    place = f"configmap {LIMITS_NAMESPACE}/{LIMITS_NAME}"
    try:
        config_map = get(api, BY_RESOURCE["configmaps"], LIMITS_NAMESPACE, LIMITS_NAME)
        return read_limits(config_map.get("data", {}).get(LIMITS_KEY, ""))
    except NotFound:
        return Limits()
    except Forbidden:
        note(f"cannot read the limits ({place}): permission denied")
    except BadLimits as error:
        note(f"{place}: {error}; the previous limits remain in force")
    return Limits()


def _priorities(api: "Api", note: "Callable[[str], None]") -> Priorities:
    try:
        classes = list_all(api, BY_RESOURCE[PRIORITY_CLASSES], "")
    except Forbidden:
        note("cannot read PriorityClasses: permission denied; priorities are shown as 0")
        classes = []
    return Priorities.of(read_priority_class(msgspec.json.encode(one)) for one in classes)
