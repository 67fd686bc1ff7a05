"""What tells supervisors and journals of different versions of onejob apart.

A supervisor outlives an upgrade of the server, because its Pods do, and its journal outlives both.
So a newer server speaks to older supervisors, and reads older journals: fields are only added, and
one that is absent has the meaning that it had before there was such a field. The numbers go up only
when that is not enough; then an older onejob refuses what a newer one left, and touches nothing.
"""

import json
import os

from onejob.node.supervisor.record_file import records_in

#: What the handshake says. 0 before there was a number.
PROTOCOL = 1
#: What the journal's first record says. 1: arrays of JSON, one per line; 2: records, which at first
#: did not say so.
JOURNAL = 2

#: Enough for the first record.
_HEAD_BYTES = 4096
_WAY_OUT = "upgrade onejob, or use another data directory"


class NewerVersion(Exception):
    """Left by a newer onejob; the text is one line that says what to do."""


def require_known_protocol(version: int, folder: str) -> None:
    """Raises NewerVersion."""
    if version > PROTOCOL:
        raise NewerVersion(
            f"the supervisor in {folder} is of a newer onejob (protocol {version}, this one speaks "
            f"{PROTOCOL}) and still has Pods; {_WAY_OUT}"
        )


def require_known_journal(path: str) -> None:
    """Raises NewerVersion."""
    version = journal_version(path)
    if version > JOURNAL:
        raise NewerVersion(
            f"{path} was written by a newer onejob (version {version}, this one knows {JOURNAL}); "
            f"{_WAY_OUT}"
        )


def journal_version(path: str) -> int:
    """0 if there is no journal, or none that says so."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return 0
    try:
        head = os.read(fd, _HEAD_BYTES)
    finally:
        os.close(fd)
    if head.startswith(b"["):
        return 1
    for record in records_in(head):
        fields = json.loads(record.payload)
        if fields.get("k") == "header":
            return int(fields.get("version", 2))
    return 0
