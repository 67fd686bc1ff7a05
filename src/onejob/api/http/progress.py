"""Progress of one request through the stages."""

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from onejob.api.access.authorization import Attributes
from onejob.api.http.operations import Operation
from onejob.api.http.requests import Request
from onejob.api.http.routing import ResourcePath
from onejob.tracing import Span

if TYPE_CHECKING:
    import asyncio

    from onejob.api.audit.recorder import AuditedRequest

_METHODS: Final = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))

#: Verb, group, version, resource and subresource of a request, as in upstream's metrics.
Labels = tuple[str, str, str, str, str]


class Progress(Struct):
    """State of one request that outlives a stage. Not shared between requests."""

    request: Request
    request_id: bytes
    #: Monotonic time of arrival.
    started_at: float
    #: None until the request has been routed.
    operation: Operation | None = None
    #: Attributes for which the user was authorized; open streams are authorized again.
    required: tuple[Attributes, ...] = ()
    #: Status code and labels of the response; 0 and empty before it exists.
    code: int = 0
    labels: Labels = ("", "", "", "", "")
    #: Whether the response is a stream or session without a natural end.
    endless: bool = False
    #: Whether a failure has already been logged.
    logged: bool = False
    #: Set only if requests are traced.
    span: Span | None = None
    #: Audit record; None if there is no audit log.
    audited: "AuditedRequest | None" = None
    #: Holder of the occupied seat (see `flow_control`); "" for none.
    seat: str = ""
    #: Done once the user's access to the open stream has been revoked.
    revoked: "asyncio.Future[None] | None" = None

    def stands_for(self, attributes: Attributes) -> None:
        """Record an API request that this dashboard request performs on the user's behalf."""
        self.required = (*self.required, attributes)
        if self.audited is not None:
            self.audited.stands_for(attributes)

    def describe(self) -> Labels:
        """Return the labels of the request as far as it has been routed."""
        operation = self.operation
        if operation is None or not isinstance(operation.path, ResourcePath):
            method = self.request.method
            return method if method in _METHODS else "OTHER", "", "", "", ""
        path = operation.path
        kind = path.kind
        return operation.verb.upper(), kind.group, kind.version, kind.plural, path.subresource
