"""Where a run copies what its containers write, byte for byte, beside showing it."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Protocol


class Output(Protocol):
    """`container` is "" where the Pod has only one."""

    def write(self, pod: str, container: str, data: bytes) -> None: ...

    def end(self, pod: str, container: str) -> None:
        """That container, or this instance of it, writes no more."""


class StreamOutput:
    """All of it, in the order in which it is read."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def write(self, pod: str, container: str, data: bytes) -> None:
        self._stream.write(data)
        self._stream.flush()

    def end(self, pod: str, container: str) -> None: ...


class FolderOutput:
    """A file for each Pod that writes something: POD.log, or POD.CONTAINER.log if it has several
    containers. What a restarted container writes follows what it wrote before."""

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
            # Pods and their kept logs are not affected.
            self._failed = True
            self._notice(f"no more is written to {self._folder}: {error.strerror}")

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
