"""Version numbers of the supervisor protocol and the journal format.

A supervisor outlives an upgrade of the server, because its Pods do, and its journal outlives both.
A newer server therefore supports older supervisors and journals: fields are only added, and an
absent field has the meaning from before it was introduced. The numbers are increased only for
incompatible changes; an older onejob then refuses the data of a newer one, and changes nothing.
"""

import json
import os

from onejob.node.supervisor.record_file import records_in

#: Version in the handshake; 0 before it was introduced.
PROTOCOL = 1
#: Version in the journal's first record. 1: arrays of JSON, one per line; 2: records, at first
#: without a version.
JOURNAL = 2

#: Sufficient for the first record.
_HEAD_BYTES = 4096
_WAY_OUT = "upgrade onejob, or use another data directory"


class NewerVersion(Exception):
    """Data of a newer onejob; the message is one line with instructions for the user."""


def require_known_protocol(version: int, folder: str) -> None:
    """Check the version of a running supervisor. Raises NewerVersion."""
    if version > PROTOCOL:
        raise NewerVersion(
            f"the supervisor in {folder} belongs to a newer onejob (protocol {version}, this "
            f"one supports {PROTOCOL}) and still has Pods; {_WAY_OUT}"
        )


def require_known_journal(path: str) -> None:
    """Check the version of a journal file. Raises NewerVersion."""
    version = journal_version(path)
    if version > JOURNAL:
        raise NewerVersion(
            f"{path} was written by a newer onejob (version {version}, this one supports "
            f"{JOURNAL}); {_WAY_OUT}"
        )


def journal_version(path: str) -> int:
    """Return the journal's version; 0 if there is no journal, or none with a header."""
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
