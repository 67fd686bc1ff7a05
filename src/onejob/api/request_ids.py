"""The id of each request: sent back as `Audit-Id`, as Kubernetes does, and named in the audit log
and in the server's log, so that the three can be put side by side."""

import re
from collections.abc import Mapping
from random import Random
from typing import Final

from onejob.api.writing.metadata import new_uid

#: What a client may name its request.
_GIVEN: Final = re.compile(rb"[A-Za-z0-9-]{1,64}")
#: Of a UUID, what the server's ids have in common; the rest counts requests.
_PREFIX: Final = 24


class RequestIds:
    """Counted rather than drawn: a random number for each request would cost more than its
    header. Another start of the server has another prefix."""

    def __init__(self, rng: Random) -> None:
        self._prefix = new_uid(rng)[:_PREFIX].encode()
        self._count = 0

    def of(self, headers: Mapping[bytes, bytes]) -> bytes:
        """That which the client chose, if it did."""
        given = headers.get(b"audit-id")
        if given is not None and _GIVEN.fullmatch(given):
            return given
        self._count += 1
        return b"%b%012x" % (self._prefix, self._count)
