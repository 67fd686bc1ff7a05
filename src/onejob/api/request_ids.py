"""Request ids, returned as `Audit-Id` as in Kubernetes.

They also appear in the audit log and the server's log, so that entries can be correlated.
"""

import re
from collections.abc import Mapping
from random import Random
from typing import Final

from onejob.api.writing.metadata import new_uid

#: Valid ids chosen by clients.
_GIVEN: Final = re.compile(rb"[A-Za-z0-9-]{1,64}")
#: Length of the UUID prefix that ids of one server run share; the rest is a request counter.
_PREFIX: Final = 24


class RequestIds:
    """Source of request ids.

    They are counted, because a random number per request would cost more than its header. Each
    server start has another prefix.
    """

    def __init__(self, rng: Random) -> None:
        self._prefix = new_uid(rng)[:_PREFIX].encode()
        self._count = 0

    def of(self, headers: Mapping[bytes, bytes]) -> bytes:
        """Return the client's id if it sent a valid one, else a new one."""
        given = headers.get(b"audit-id")
        if given is not None and _GIVEN.fullmatch(given):
            return given
        self._count += 1
        return b"%b%012x" % (self._prefix, self._count)
