"""API errors, mapped to Kubernetes' `Status`.

    ApiError
    ├── BadRequest            400
    ├── Unauthorized          401
    ├── Forbidden             403
    ├── NotFound              404
    ├── MethodNotAllowed      405
    ├── NotAcceptable         406
    ├── RequestTimeout        408
    ├── AlreadyExists         409
    ├── Conflict              409
    ├── Expired               410
    ├── RequestTooLarge       413
    ├── UnsupportedMediaType  415
    ├── Invalid               422, with one cause per field
    ├── TooManyRequests       429
    ├── InternalError         500
    └── Timeout               504

Clients branch on `reason`; people read `message`. `details.kind` is the plural resource in 404 and
409 and the Kind in 422, as upstream has it.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from onejob.wire.field_errors import FieldError, shortened

#: Maximum number of causes in a response; more are not useful.
MAX_CAUSES = 100
_MAX_MESSAGE_LENGTH = 256 * 1024


class ApiError(Exception):
    """Base class of errors that are returned to clients as a `Status`.

    Subclasses set the HTTP `code` and the `reason`. Very long messages are shortened. If
    `retry_after_seconds` is given, `details` contains it as well.
    """

    code = 500
    reason = "InternalError"

    def __init__(
        self,
        message: str,
        *,
        details: dict[str, Any] | None = None,
        retry_after_seconds: int | None = None,
    ) -> None:
        message = shortened(message, _MAX_MESSAGE_LENGTH)
        super().__init__(message)
        self.message = message
        self.details = dict(details or {})
        #: Warnings of the request up to the error, which the response contains as well.
        self.warnings: Sequence[str] = ()
        self.retry_after_seconds = retry_after_seconds
        if retry_after_seconds is not None:
            self.details["retryAfterSeconds"] = retry_after_seconds

    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details:
            status["details"] = self.details
        status["code"] = self.code
        return status


class BadRequest(ApiError):
    code, reason = 400, "BadRequest"


class Unauthorized(ApiError):
    code, reason = 401, "Unauthorized"


class Forbidden(ApiError):
    code, reason = 403, "Forbidden"


class NotFound(ApiError):
    code, reason = 404, "NotFound"


class MethodNotAllowed(ApiError):
    code, reason = 405, "MethodNotAllowed"


class NotAcceptable(ApiError):
    code, reason = 406, "NotAcceptable"


class RequestTimeout(ApiError):
    """The client took too long to send its request."""

    code, reason = 408, "Timeout"


class AlreadyExists(ApiError):
    code, reason = 409, "AlreadyExists"


class Conflict(ApiError):
    code, reason = 409, "Conflict"


class Expired(ApiError):
    code, reason = 410, "Expired"


class RequestTooLarge(ApiError):
    code, reason = 413, "RequestEntityTooLarge"


class ConversionFailed(ApiError):
    """The object exists, but cannot be converted to the requested version."""

    code, reason = 500, "InternalError"


class UnsupportedMediaType(ApiError):
    code, reason = 415, "UnsupportedMediaType"


class Invalid(ApiError):
    code, reason = 422, "Invalid"

    def __init__(self, kind: str, group: str, name: str, errors: Sequence[FieldError]) -> None:
        """`kind` is the Kind (`Job`); `group` is empty for core kinds."""
        shown = errors[:MAX_CAUSES]
        # A name that is also used in two labels is invalid three times; report each error once.
        texts = list(dict.fromkeys(str(error) for error in shown))
        by_text = {(str(error), error.cause()["reason"]): error for error in shown}
        causes = [error.cause() for error in by_text.values()]
        if len(errors) > MAX_CAUSES:
            texts.append(more_causes(len(errors)))
            causes.append({"message": texts[-1], "field": "..."})
        name = shortened(name)
        qualified = f"{kind}.{group}" if group else kind
        joined = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
        details: dict[str, Any] = {"name": name} if name else {}
        if group:
            details["group"] = group
        details["kind"] = kind
        details["causes"] = causes
        super().__init__(f'{qualified} "{name}" is invalid: {joined}', details=details)
        self.errors = tuple(shown)


class TooManyRequests(ApiError):
    code, reason = 429, "TooManyRequests"


class InternalError(ApiError):
    code, reason = 500, "InternalError"

    @classmethod
    def occurred(cls, cause: str) -> "InternalError":
        """Return the error that upstream makes of an unexpected one."""
        details = {"causes": [{"message": cause}]}
        return cls(f"Internal error occurred: {cause}", details=details)


#: Hint for clients whose request could not be processed for want of memory.
_OUT_OF_MEMORY_SECONDS: Final = 5


class ServiceUnavailable(ApiError):
    """The server lacks a resource for now. Nothing was written; the request may be retried."""

    code, reason = 503, "ServiceUnavailable"


class InsufficientStorage(ApiError):
    """The store's disk is full. Nothing was written; the request may be retried later."""

    code, reason = 507, "InsufficientStorage"


class Timeout(ApiError):
    code, reason = 504, "Timeout"


#: Failures of an API call that may pass: refusals, connection errors, and a lack of memory here.
CALL_FAILURES: Final = (ApiError, OSError, MemoryError)


def out_of_memory() -> ServiceUnavailable:
    return ServiceUnavailable(
        "out of memory for this request, please try again later",
        retry_after_seconds=_OUT_OF_MEMORY_SECONDS,
    )


@contextmanager
def memory_errors_as_refusals() -> Iterator[None]:
    """Raise ServiceUnavailable for a MemoryError, so that callers retry as after any refusal."""
    try:
        yield
    except MemoryError as error:
        raise out_of_memory() from error


def more_causes(count: int) -> str:
    return f"and {count - MAX_CAUSES} more errors"


def _details(resource: str, name: str) -> dict[str, Any]:
    """Return the details of an error about an object."""
    plural, _, group = resource.partition(".")
    details: dict[str, Any] = {"name": name} if name else {}
    if group:
        details["group"] = group
    details["kind"] = plural
    return details


def not_found(resource: str, name: str) -> NotFound:
    """Return the error. `resource` is the plural with its group, as in `Key`: `jobs.batch`."""
    return NotFound(f'{resource} "{name}" not found', details=_details(resource, name))


def already_exists(resource: str, name: str) -> AlreadyExists:
    return AlreadyExists(f'{resource} "{name}" already exists', details=_details(resource, name))


def conflict(
    resource: str,
    name: str,
    why: str = (
        "the object has been modified; please apply your changes to the latest version "
        "and try again"
    ),
) -> Conflict:
    """Return the error of a write that is based on an outdated state."""
    return Conflict(
        f'Operation cannot be fulfilled on {resource} "{name}": {why}',
        details=_details(resource, name),
    )


def expired(revision: int, oldest: int) -> Expired:
    """Return the error of a revision whose history is compacted."""
    return Expired(f"too old resource version: {revision} ({oldest})")


_BY_REASON: dict[str, type[ApiError]] = {
    cls.reason: cls
    for cls in (
        BadRequest, Unauthorized, Forbidden, NotFound, MethodNotAllowed, NotAcceptable,
        AlreadyExists, Conflict, Expired, RequestTooLarge, UnsupportedMediaType,
        TooManyRequests, InternalError, ServiceUnavailable, InsufficientStorage, Timeout,
    )
}  # fmt: skip


def from_status(status: dict[str, Any]) -> ApiError:
    """Return the error of a `Status` document that a server sent. Malformed fields are ignored."""
    code = status.get("code")
    code = code if isinstance(code, int) and 100 <= code < 600 else 500
    reason = str(status.get("reason") or "")
    details = status.get("details")
    details = details if isinstance(details, dict) else {}
    cls = _BY_REASON.get(reason, ApiError)
    if reason == "Invalid":
        cls = _RemoteInvalid
    error = cls(str(status.get("message") or reason), details=details)
    error.code = code
    error.reason = reason or error.reason
    retry = details.get("retryAfterSeconds")
    error.retry_after_seconds = retry if isinstance(retry, int) else None
    return error


class _RemoteInvalid(Invalid):
    """A 422 received from a server: its causes are strings, not FieldErrors."""

    def __init__(
        self,
        message: str,
        *,
        details: dict[str, Any] | None = None,
        retry_after_seconds: int | None = None,
    ) -> None:
        ApiError.__init__(self, message, details=details, retry_after_seconds=retry_after_seconds)
        self.errors = ()
