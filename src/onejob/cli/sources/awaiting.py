"""Wait conditions (`onejob wait --for`) and the loops that wait for them."""

from math import ceil
from time import sleep
from typing import TYPE_CHECKING, Any, Final

import msgspec

from onejob.cli.errors import EXIT_FAILED, CommandError
from onejob.cli.kept_runs import is_under_way
from onejob.cli.resource_args import ResourceArg
from onejob.cli.sources.base import Api, ApiRequest, get, path_of, watch_events
from onejob.cli.sources.selection import Sources
from onejob.clock import Clock
from onejob.wire.errors import NotFound

if TYPE_CHECKING:
    from onejob.cli.sources.stored_api import StoredApi

_WATCH_SECONDS: Final = 300
#: Seconds between two reads of a run that is under way.
_LOOK_SECONDS: Final = 0.3


class WaitResult(msgspec.Struct, frozen=True):
    """Final result of a wait, with a text for the user.

    `good` is False if the Job failed, or if the object was deleted although its deletion was not
    the condition.
    """

    good: bool
    text: str


class WaitCondition(msgspec.Struct, frozen=True):
    """Condition to wait for. `type` is "" for the end of a Job, and `delete` for deletion."""

    type: str = ""
    status: str = "True"

    @classmethod
    def parse(cls, text: str) -> "WaitCondition":
        if not text:
            return cls()
        kind, _, rest = text.partition("=")
        if text.lower() == "delete":
            return cls("delete")
        if kind != "condition" or not rest:
            raise CommandError(
                f"--for {text}: expected condition=NAME, condition=NAME=VALUE or delete"
            )
        name, _, status = rest.partition("=")
        return cls(name, status or "True")

    def __str__(self) -> str:
        match self.type:
            case "":
                return "finished"
            case "delete":
                return "deleted"
            case _:
                return f"{self.type}={self.status}"

    def judge(self, document: dict[str, Any] | None) -> WaitResult | None:
        """Evaluate the condition; None while it does not hold.

        `document` is None for a deleted object.
        """
        if document is None:
            if self.type == "delete":
                return WaitResult(True, "deleted")
            return WaitResult(False, "was deleted")
        conditions = document.get("status", {}).get("conditions", ())
        for condition in conditions:
            kind, status = condition.get("type", ""), condition.get("status", "")
            if not self.type and kind in ("Complete", "Failed") and status == "True":
                detail = "" if kind == "Complete" else f": {condition.get('message', '')}"
                return WaitResult(kind == "Complete", f"{kind}{detail}")
            wanted = kind.lower() == self.type.lower() and status.lower() == self.status.lower()
            if self.type and wanted:
                return WaitResult(True, "condition met")
        return None


def await_object(
    where: Sources, arg: ResourceArg, condition: WaitCondition, clock: Clock, deadline: float | None
) -> WaitResult | None:
    """Wait for a condition, on the server or in a kept run; None at the deadline.

    Raises NotFound if no such object exists, unless the condition is its deletion.
    """
    try:
        api, namespace = where.holding(arg)
    except NotFound:
        if condition.type == "delete":
            return WaitResult(True, "deleted")
        raise
    from onejob.cli.sources.stored_api import StoredApi

    if isinstance(api, StoredApi):
        return _await_run(api, arg, namespace, condition, clock, deadline)
    return await_on_server(api, arg, namespace, condition, clock, deadline)


def await_on_server(
    api: Api,
    arg: ResourceArg,
    namespace: str,
    condition: WaitCondition,
    clock: Clock,
    deadline: float | None,
) -> WaitResult | None:
    """List, then watch one object until the condition holds; None at the deadline."""
    path = path_of(arg.kind, namespace)
    selection = {"fieldSelector": f"metadata.name={arg.name}"}
    while True:
        listing = api.send(ApiRequest("GET", path, selection)).document
        verdict = condition.judge(listing["items"][0] if listing["items"] else None)
        seconds = _watch_seconds(clock, deadline)
        if verdict is not None or seconds <= 0:
            return verdict
        query = {
            **selection,
            "watch": "true",
            "resourceVersion": listing["metadata"]["resourceVersion"],
            "timeoutSeconds": str(seconds),
        }
        for event in watch_events(api, ApiRequest("GET", path, query)):
            if event["type"] == "ERROR":
                break
            gone = event["type"] == "DELETED"
            verdict = condition.judge(None if gone else event["object"])
            if verdict is not None:
                return verdict


def _watch_seconds(clock: Clock, deadline: float | None) -> int:
    """Return `timeoutSeconds` of the watch, after which the server ends it by itself."""
    if deadline is None:
        return _WATCH_SECONDS
    return min(_WATCH_SECONDS, ceil(deadline - clock.monotonic()))


def _await_run(
    api: "StoredApi",
    arg: ResourceArg,
    namespace: str,
    condition: WaitCondition,
    clock: Clock,
    deadline: float | None,
) -> WaitResult | None:
    """Poll the store of a run until the condition holds; None at the deadline.

    A run serves no API to other processes, so its state is read repeatedly. Raises CommandError if
    the run ends first.
    """
    while True:
        # Checked before reading: only the state of a run that has already ended is final.
        over = not is_under_way(api.folder)
        try:
            document = get(api, arg.kind, namespace, arg.name)
        except NotFound:
            document = None
        verdict = condition.judge(document)
        if verdict is not None:
            return verdict
        if over:
            raise CommandError(
                f"{api.title} ended before {arg} was {condition}", exit_code=EXIT_FAILED
            )
        if deadline is not None and clock.monotonic() >= deadline:
            return None
        sleep(_LOOK_SECONDS)
        api.close()
        api = api.fresh()
