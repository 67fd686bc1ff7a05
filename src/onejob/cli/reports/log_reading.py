"""Container logs over the API: one container after the other, or several followed at once."""

import queue
import re
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any, Final, TextIO

import msgspec

from onejob.cli.display.terminal import terminal_of, visible
from onejob.cli.errors import EXIT_OK, CommandError
from onejob.cli.sources.base import Api, ApiRequest, path_of
from onejob.objects.meta import PODS
from onejob.wire.errors import ApiError, BadRequest
from onejob.wire.kinds import BY_RESOURCE

#: Containers followed at most; each of them takes a connection.
_MAX_FOLLOWED: Final = 50
_COLOURS: Final = ("cyan", "magenta", "blue", "yellow", "green")


class LogQuery(msgspec.Struct, frozen=True):
    follow: bool = False
    previous: bool = False
    #: Number of last lines; all if negative.
    tail_lines: int = -1
    since_seconds: float | None = None
    since_time: str = ""
    limit_bytes: int | None = None
    timestamps: bool = False
    #: Regular expression that shown lines must match anywhere; "" shows all lines.
    pattern: str = ""

    def shows(self, line: str) -> bool:
        """Return whether the line matches `--grep`."""
        return not self.pattern or re.search(self.pattern, line) is not None

    def parameters(self, container: str) -> dict[str, str]:
        since = self.since_seconds
        return {
            "container": container,
            "follow": "true" if self.follow else "",
            "previous": "true" if self.previous else "",
            "tailLines": str(self.tail_lines) if self.tail_lines >= 0 else "",
            "sinceSeconds": str(max(1, round(since))) if since is not None else "",
            "sinceTime": self.since_time,
            "limitBytes": str(self.limit_bytes) if self.limit_bytes is not None else "",
            "timestamps": "true" if self.timestamps else "",
        }


class Reading(msgspec.Struct, frozen=True):
    namespace: str
    pod: str
    container: str

    @property
    def path(self) -> str:
        return path_of(BY_RESOURCE[PODS], self.namespace, self.pod, "log")


def containers_of(pod: dict[str, Any], wanted: str, *, all_of_them: bool) -> list[Reading]:
    spec, metadata = pod["spec"], pod["metadata"]
    names = [container["name"] for container in spec["containers"]]
    inits = [container["name"] for container in spec.get("initContainers", ())]
    if wanted:
        if wanted not in (*inits, *names):
            raise CommandError(
                f"pod/{metadata['name']} has no container {wanted}",
                f"its containers are {', '.join((*inits, *names))}",
            )
        chosen = [wanted]
    else:
        chosen = [*inits, *names] if all_of_them else names
    return [Reading(metadata["namespace"], metadata["name"], name) for name in chosen]


def print_logs(
    api: Api, readings: Sequence[Reading], query: LogQuery, stream: TextIO, *, prefix: bool
) -> int:
    """Print the logs of one container after the other.

    Raises BadRequest for a single container that has no logs yet; among several it gets a note.
    """
    several = len({reading.container for reading in readings}) > 1
    for number, reading in enumerate(readings):
        head = head_of(reading, number, several=several) if prefix else ""
        try:
            pieces = api.stream(
                ApiRequest("GET", reading.path, query.parameters(reading.container))
            )
            for line in whole_lines(pieces):
                if query.shows(line):
                    stream.write(f"{head}{line}")
                if query.follow:
                    stream.flush()
        except BadRequest as error:
            # A container that waits to start must not hide the logs of its siblings.
            if len(readings) == 1:
                raise
            print(f"note: pod/{reading.pod}: {visible(error.message)}", file=sys.stderr)
    return EXIT_OK


def follow_all(api: Api, readings: Sequence[Reading], query: LogQuery, *, prefix: bool) -> int:
    """Follow several containers at once, interleaved by line, until the last one ends."""
    if len(readings) > _MAX_FOLLOWED:
        raise CommandError(
            f"cannot follow {len(readings)} containers at once",
            "select fewer with -l or a Pod name",
        )
    several = len({reading.container for reading in readings}) > 1
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def follow(number: int, reading: Reading) -> None:
        head = head_of(reading, number, several=several) if prefix else ""
        own = api.fresh()
        try:
            ask = ApiRequest("GET", reading.path, query.parameters(reading.container))
            for line in whole_lines(own.stream(ask)):
                if query.shows(line):
                    lines.put(head + line)
        except (ApiError, CommandError) as error:
            lines.put(f"{head}({error})\n")
        finally:
            own.close()
            lines.put(None)

    for number, reading in enumerate(readings):
        threading.Thread(target=follow, args=(number, reading), daemon=True).start()
    open_ends = len(readings)
    while open_ends:
        line = lines.get()
        if line is None:
            open_ends -= 1
        else:
            sys.stdout.write(line)
            sys.stdout.flush()
    return EXIT_OK


def whole_lines(pieces: Iterator[bytes]) -> Iterator[str]:
    """Yield complete lines, and the unterminated rest with a newline added."""
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield line.decode("utf-8", "replace") + "\n"
    if rest:
        yield rest.decode("utf-8", "replace") + "\n"


def head_of(reading: Reading, number: int, *, several: bool) -> str:
    name = f"{reading.pod}/{reading.container}" if several else reading.pod
    return terminal_of().paint(f"[{name}]", _COLOURS[number % len(_COLOURS)]) + " "
