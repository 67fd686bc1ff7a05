"""Log and session requests for a Pod's containers: parameters, container choice, and interfaces.

The node provides the data through `LogSource` and `ExecSource`.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol

from onejob.api.decoding.query import Query, first, flag, whole_number
from onejob.api.strategy import Document
from onejob.wire.errors import BadRequest, Invalid
from onejob.wire.field_errors import FieldError, forbidden, invalid
from onejob.wire.requests import LogOptions


class LogSource(Protocol):
    """Source of container logs, implemented by the node.

    `options` select the instance of the container and the range of its output.
    """

    async def logs(
        self, namespace: str, name: str, container: str, options: LogOptions
    ) -> AsyncIterator[bytes]:
        """Return the log in pieces of whole or partial lines.

        A followed log ends when its container does. Rejections (container still waiting, no
        previous instance) are raised before the first piece.
        """


@dataclass(frozen=True, slots=True)
class ExecRequest:
    namespace: str
    name: str
    container: str
    #: Command to execute; empty to attach to the running process.
    command: tuple[str, ...] = ()
    stdin: bool = False
    stdout: bool = False
    stderr: bool = False
    tty: bool = False


@dataclass(frozen=True, slots=True)
class TerminalSize:
    width: int
    height: int


class ExecStreams(Protocol):
    """Client side of a session."""

    async def read_stdin(self) -> bytes:
        """Return the next piece of stdin; empty at its end."""

    async def write_stdout(self, data: bytes) -> None: ...

    async def write_stderr(self, data: bytes) -> None: ...

    async def next_size(self) -> TerminalSize:
        """Wait until the client's terminal is resized and return its size."""


class ExecSource(Protocol):
    async def exec(self, request: ExecRequest, streams: ExecStreams) -> int:
        """Run the command to its end and return the exit code.

        Cancelled when the client disconnects.
        """


def log_options(query: Query, pod: str) -> LogOptions:
    """Return the options of a log request. Raises Invalid, BadRequest."""
    tail = whole_number(query, "tailLines")
    limit = whole_number(query, "limitBytes")
    since_seconds = whole_number(query, "sinceSeconds")
    since_time = _time(first(query, "sinceTime"))
    errors: list[FieldError] = []
    if tail is not None and tail < 0:
        errors.append(invalid("tailLines", tail, "must be greater than or equal to 0"))
    if limit is not None and limit < 1:
        errors.append(invalid("limitBytes", limit, "must be greater than 0"))
    if since_seconds is not None and since_time is not None:
        errors.append(
            forbidden(
                "sinceSeconds", "at most one of `sinceTime` or `sinceSeconds` may be specified"
            )
        )
    elif since_seconds is not None and since_seconds < 1:
        errors.append(invalid("sinceSeconds", since_seconds, "must be greater than 0"))
    if errors:
        raise Invalid("PodLogOptions", "", pod, errors)
    return LogOptions(
        follow=flag(query, "follow"),
        previous=flag(query, "previous"),
        timestamps=flag(query, "timestamps"),
        tail_lines=tail,
        limit_bytes=limit,
        since_seconds=since_seconds,
        since_time=since_time,
    )


def session_request(
    pod: Document, query: Query, namespace: str, name: str, *, attach: bool
) -> ExecRequest:
    """Return the parsed parameters of an exec or attach.

    Raises BadRequest if the Pod or container does not support it.
    """
    container = choose_container(pod, first(query, "container"))
    require_running(pod)
    command = () if attach else tuple(query.get("command", ()))
    if not attach and not command:
        raise BadRequest("you must specify at least 1 command")
    wanted = {stream: flag(query, stream) for stream in ("stdin", "stdout", "stderr")}
    if not any(wanted.values()):
        raise BadRequest("you must specify at least 1 of stdin, stdout, stderr")
    tty = flag(query, "tty")
    # A terminal has a single output stream.
    stderr = wanted["stderr"] and not tty
    return ExecRequest(
        namespace, name, container, command, wanted["stdin"], wanted["stdout"], stderr, tty
    )


def choose_container(pod: Document, asked: str) -> str:
    """Return the requested container, or the only one.

    Raises BadRequest if it does not exist or the choice is ambiguous.
    """
    spec = pod.get("spec", {})
    names = _names(spec, "containers")
    init_names = _names(spec, "initContainers")
    others = _names(spec, "ephemeralContainers")
    name = pod["metadata"]["name"]
    if asked:
        if asked not in (*names, *init_names, *others):
            raise BadRequest(f"container {asked} is not valid for pod {name}")
        return asked
    if len(names) == 1:
        return names[0]
    text = f"a container name must be specified for pod {name}, choose one of: {_go_list(names)}"
    if init_names:
        text += f" or one of the init containers: {_go_list(init_names)}"
    raise BadRequest(text)


def is_scheduled(pod: Document) -> bool:
    return bool(pod.get("spec", {}).get("nodeName"))


_ENDED: Final = ("Succeeded", "Failed")


def require_running(pod: Document, intent: str = "exec into a container in") -> None:
    """Raise BadRequest unless the Pod is scheduled and has not ended."""
    name = pod["metadata"]["name"]
    phase = pod.get("status", {}).get("phase", "")
    if phase in _ENDED:
        raise BadRequest(f"cannot {intent} a completed pod; current phase is {phase}")
    if not is_scheduled(pod):
        raise BadRequest(f"pod {name} does not have a host assigned")


def _names(spec: dict[str, Any], field: str) -> list[str]:
    """Return the names of the containers in a field of a Pod's spec."""
    return [container["name"] for container in spec.get(field, ())]


def _go_list(names: Sequence[str]) -> str:
    return f"[{' '.join(names)}]"


def _time(text: str) -> datetime | None:
    """Return a time with its zone; None if it is absent. Raises BadRequest."""
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise BadRequest(f"sinceTime is not an RFC 3339 time: {text!r}") from error
    if moment.tzinfo is None:
        raise BadRequest(f"sinceTime has no time zone: {text!r}")
    return moment
