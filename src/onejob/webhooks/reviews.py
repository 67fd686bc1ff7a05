"""AdmissionReview v1: requests to admission webhooks, and their responses. Pure."""

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct, field

from onejob.api.admission.dynamic.activation import request_namespace, user_info
from onejob.api.admission.dynamic.attributes import AdmissionRequest
from onejob.api.strategy import Document
from onejob.wire.errors import ApiError
from onejob.wire.kinds import Kind

API_VERSION: Final = "admission.k8s.io/v1"
_KIND: Final = "AdmissionReview"


class InvalidResponse(Exception):
    """The webhook's response is not a response to this request."""

    #: Code in metrics, as upstream.
    code: Final = 503


class Answer(Struct, frozen=True):
    """Response of an admission webhook."""

    allowed: bool
    #: Operations of a JSON patch.
    patch: tuple[Any, ...] = ()
    status: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)


class Denied(ApiError):
    """Rejection by a webhook, with the code and reason that it chose."""

    def __init__(self, webhook: str, status: Mapping[str, Any]) -> None:
        code, given = status.get("code"), status.get("reason")
        message = status.get("message") or given
        denied = f'admission webhook "{webhook}" denied the request'
        details = status.get("details")
        super().__init__(
            f"{denied}: {message}" if message else f"{denied} without explanation",
            details=details if isinstance(details, dict) else None,
        )
        self.code = code if isinstance(code, int) and 400 <= code < 600 else 400
        self.reason = given if isinstance(given, str) else ""


class _Response(Struct, rename="camel"):
    uid: str = ""
    allowed: bool = False
    status: dict[str, Any] | None = None
    patch: str | None = None
    patch_type: str | None = None
    warnings: list[str] | None = None
    audit_annotations: dict[str, str] | None = None


class _Review(Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    response: _Response | None = None


_read = msgspec.json.Decoder(_Review).decode


def encode_review(uid: str, request: AdmissionRequest, sent: Kind) -> bytes:
    """Return the body of a call. `sent` is the version in which the webhook gets its objects."""
    group, version, kind = request.body_kind
    same = sent == request.kind
    review: Document = {
        "uid": uid,
        "kind": _kind(group, version, kind) if same else _kind(sent.group, sent.version, kind),
        "resource": _resource(sent),
    }
    if request.subresource:
        review["subResource"] = request.subresource
    review["requestKind"] = _kind(group, version, kind)
    review["requestResource"] = _resource(request.kind)
    if request.subresource:
        review["requestSubResource"] = request.subresource
    if request.name:
        review["name"] = request.name
    if namespace := request_namespace(request):
        review["namespace"] = namespace
    review |= {
        "operation": request.operation,
        "userInfo": user_info(request.user),
        "object": request.object,
        "oldObject": request.old_object,
        "dryRun": request.dry_run,
        "options": request.options or None,
    }
    return msgspec.json.encode({"kind": _KIND, "apiVersion": API_VERSION, "request": review})


def decode_review(body: bytes, uid: str, *, mutating: bool) -> Answer:
    """Return the response of a webhook. Raises InvalidResponse."""
    try:
        review = _read(body)
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError) as error:
        raise InvalidResponse(f"cannot decode the response: {error}") from error
    if (review.api_version, review.kind) != (API_VERSION, _KIND):
        group, _, version = review.api_version.rpartition("/")
        found = f"{group}/{version}, Kind={review.kind}"
        raise InvalidResponse(
            f"expected webhook response of {API_VERSION}, Kind={_KIND}, got {found}"
        )
    response = review.response
    if response is None:
        raise InvalidResponse("webhook response was absent")
    if response.uid != uid:
        raise InvalidResponse(f'expected response.uid="{uid}", got "{response.uid}"')
    return Answer(
        response.allowed,
        _patch(response, mutating=mutating),
        response.status or {},
        tuple(response.warnings or ()),
        response.audit_annotations or {},
    )


def _patch(response: _Response, *, mutating: bool) -> tuple[Any, ...]:
    if not response.patch:
        if response.patch_type and mutating:
            raise InvalidResponse("webhook returned response.patchType but not response.patch")
        return ()
    if not mutating:
        raise InvalidResponse("validating webhook may not return response.patch")
    if not response.patch_type:
        raise InvalidResponse("webhook returned response.patch but not response.patchType")
    if response.patch_type != "JSONPatch":
        raise InvalidResponse(
            f'webhook returned invalid response.patchType of "{response.patch_type}"'
        )
    try:
        operations = msgspec.json.decode(base64.b64decode(response.patch, validate=True))
    except (binascii.Error, ValueError, RecursionError) as error:
        raise InvalidResponse(f"cannot decode response.patch: {error}") from error
    if not isinstance(operations, list):
        raise InvalidResponse("response.patch is not a list of operations")
    return tuple(operations)


def _kind(group: str, version: str, kind: str) -> Document:
    return {"group": group, "version": version, "kind": kind}


def _resource(kind: Kind) -> Document:
    return {"group": kind.group, "version": kind.version, "resource": kind.plural}
