"""Folders of outputs: layout, creation and lookup."""

import os
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from onejob.node.supervisor.paths import read_file_beneath
from onejob.objects.pod_spec import NodePod
from onejob.planning.metadata_values import annotated_number
from onejob.planning.names import INDEX_ANNOTATION
from onejob.planning.progress import PodProgress, parse_progress

FOLDER: Final = "outputs"
RECORD: Final = "pod.json"
FILES: Final = "files"
PROGRESS: Final = "progress"
DELETED: Final = "deleted"
#: Bytes at the end of a progress file that are read.
_PROGRESS_BYTES: Final = 4096
_MAX_PROGRESS_FILE: Final = 1 << 20


class OutputRecord(msgspec.Struct, frozen=True, rename="camel"):
    """Pod with an output directory."""

    namespace: str
    name: str
    uid: str
    started_at: datetime
    #: Name and UID of its Job; empty if it belongs to none.
    job: str = ""
    job_uid: str = ""
    index: int | None = None


class KeptOutput(msgspec.Struct, frozen=True):
    record: OutputRecord
    folder: Path

    @property
    def files(self) -> str:
        return str(self.folder / FILES)

    @property
    def place(self) -> str:
        """Name of its folder among the outputs of its Job: the index, or else the Pod."""
        return self.record.name if self.record.index is None else str(self.record.index)


def make_folder(data_dir: Path, pod: NodePod, now: datetime) -> OutputRecord:
    """Create the folder of a Pod, or find it. Raises OSError.

    The folder is private; inside it, containers of any user may write. The record is written last,
    so that a folder with a record is complete.
    """
    folder = data_dir / FOLDER / pod.uid
    record = _record(pod, now)
    if (folder / RECORD).exists():
        return record
    folder.parent.mkdir(0o700, exist_ok=True)
    folder.mkdir(0o700, exist_ok=True)
    files = folder / FILES
    files.mkdir(exist_ok=True)
    files.chmod(0o777)
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(folder / PROGRESS, flags)
    os.fchmod(fd, 0o666)
    os.close(fd)
    temporary = folder / f"{RECORD}.new"
    temporary.write_bytes(msgspec.json.encode(record))
    temporary.rename(folder / RECORD)
    return record


def kept_outputs(
    data_dir: Path, matches: Callable[[OutputRecord], bool] = lambda record: True
) -> Iterator[KeptOutput]:
    """Yield the outputs below a data directory, unordered. Unreadable entries are skipped."""
    top = data_dir / FOLDER
    try:
        names = os.listdir(top)
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in names:
        try:
            content = (top / name / RECORD).read_bytes()
            record = msgspec.json.decode(content, type=OutputRecord)
        except (OSError, msgspec.DecodeError):
            continue
        if matches(record):
            yield KeptOutput(record, top / name)


def outputs_of_job(
    data_dir: Path, namespace: str, uid: str, *, one: bool = False
) -> list[KeptOutput]:
    """Return the outputs of a Job, by index or by name: of each index, those of the newest Pod.

    With `one`, only the newest Pod counts. A Pod that succeeded has no successor, so the newest is
    the successful one if there is any. Pods of other namespaces cannot claim to belong to it.
    """
    newest: dict[object, KeptOutput] = {}
    for kept in kept_outputs(
        data_dir, lambda record: (record.namespace, record.job_uid) == (namespace, uid)
    ):
        record = kept.record
        place: object = record.index if record.index is not None else ("" if one else record.name)
        other = newest.get(place)
        if other is None or _age(other) < _age(kept):
            newest[place] = kept
    return sorted(newest.values(), key=lambda kept: (kept.record.index or 0, kept.record.name))


def _age(kept: KeptOutput) -> tuple[datetime, str]:
    return kept.record.started_at, kept.record.name


def read_progress(kept: KeptOutput) -> PodProgress | None:
    """Return the newest progress of a Pod; None without a valid line.

    The container may have replaced the file or filled it: only the end of a regular file is read.
    """
    try:
        content = _tail(kept.folder)
    except OSError:
        return None
    found = parse_progress(content.decode("utf-8", "replace"))
    if found is None:
        return None
    done, total, text = found
    record = kept.record
    return PodProgress(
        pod=record.name,
        done=done,
        total=total,
        text=text,
        index=record.index,
        started_at=record.started_at,
    )


def _tail(folder: Path) -> bytes:
    size = os.lstat(folder / PROGRESS).st_size
    if size <= _PROGRESS_BYTES:
        return read_file_beneath(str(folder), PROGRESS, _PROGRESS_BYTES)
    from onejob.node.supervisor.paths import folder_of, open_file_beneath

    with folder_of(str(folder)) as top:
        fd = open_file_beneath(top, PROGRESS, os.O_RDONLY)
        try:
            return os.pread(fd, _PROGRESS_BYTES, size - _PROGRESS_BYTES)
        finally:
            os.close(fd)


def _record(pod: NodePod, now: datetime) -> OutputRecord:
    meta = pod.metadata
    owner = meta.controller_ref
    of_job = owner is not None and owner.kind == "Job"
    return OutputRecord(
        meta.namespace,
        meta.name,
        meta.uid,
        now,
        owner.name if owner is not None and of_job else "",
        owner.uid if owner is not None and of_job else "",
        annotated_number(meta, INDEX_ANNOTATION),
    )
