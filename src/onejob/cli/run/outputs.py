"""Byte-for-byte copies of container output, written in addition to the display."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Protocol


class Output(Protocol):
    """Receiver of container output. `container` is "" if the Pod has only one."""

    def write(self, pod: str, container: str, data: bytes) -> None: ...

    def end(self, pod: str, container: str) -> None:
        """Mark the end of the output of this container, or of one attempt of it."""


class StreamOutput:
    """Copies the output of all containers to a stream, in the order of reading."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def write(self, pod: str, container: str, data: bytes) -> None:
        self._stream.write(data)
        self._stream.flush()

    def end(self, pod: str, container: str) -> None: ...


class FolderOutput:
    """Writes a file per Pod: POD.log, or POD.CONTAINER.log if the Pod has several containers.

    Pods without output get no file. A restarted container's output is appended.
    """

    def __init__(self, folder: Path, notice: Callable[[str], None]) -> None:
        self._folder = folder
        self._notice = notice
        self._open: dict[tuple[str, str], BinaryIO] = {}
        self._failed = False

    def write(self, pod: str, container: str, data: bytes) -> None:
        if self._failed:
            return
        try:
            self._file(pod, container).write(data)
        except OSError as error:
            # Stop copying and report it once; Pods and their kept logs are not affected.
            self._failed = True
            self._notice(f"cannot write to {self._folder} any more: {error.strerror}")

    def end(self, pod: str, container: str) -> None:
        if (file := self._open.pop((pod, container), None)) is not None:
            file.close()

    def _file(self, pod: str, container: str) -> BinaryIO:
        key = (pod, container)
        if key not in self._open:
            name = f"{pod}.{container}.log" if container else f"{pod}.log"
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._open[key] = os.fdopen(os.open(self._folder / name, flags, 0o666), "wb", 0)
        return self._open[key]
