"""Auditing stage: keep the audit record of a request.

It is created when the headers have arrived, completed with the user by the authentication stage,
and written before a response is sent.
"""

from typing import TYPE_CHECKING

import msgspec

from onejob.api.http.progress import Progress
from onejob.api.http.requests import BodyStream, Request
from onejob.api.http.responses import Response

if TYPE_CHECKING:
    from onejob.api.audit.recorder import AuditedRequest, Auditor


class Auditing:
    """Stage that records requests in the audit log."""

    def __init__(self, auditor: "Auditor") -> None:
        self._auditor = auditor

    def begin(self, request: Request, progress: Progress) -> Request:
        """Start the record of a request. Return the request, whose body adds itself to it."""
        audited = progress.audited = self._auditor.begin(
            request.uri, request.fields, progress.request_id, request.peer.address
        )
        return msgspec.structs.replace(request, stream=_AuditedBody(request.stream, audited))


def record_response(audited: "AuditedRequest", response: Response) -> None:
    """Record a response before it is sent."""
    if response.endless:
        audited.started(response.code)
    else:
        body = response.body if isinstance(response.body, bytes) else None
        audited.complete(response.code, body, response.content_type)


def record_end(audited: "AuditedRequest", code: int) -> None:
    """Record the end of an endless response."""
    audited.complete(code, None, b"")


class _AuditedBody:
    """Body that is added to an audit record as it is read."""

    def __init__(self, stream: BodyStream, audited: "AuditedRequest") -> None:
        self._stream = stream
        self._audited = audited

    async def receive(self) -> tuple[bytes, bool]:
        piece, more = await self._stream.receive()
        if self._audited.wants_body:
            self._audited.body(piece)
        return piece, more
