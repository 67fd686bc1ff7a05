"""AdmissionReview v1: requests to admission webhooks, and their responses. Pure."""

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
#: Versions of reviews: webhooks name those that they understand.
REVIEW_VERSIONS: Final = ("v1", "v1beta1")
_GROUP: Final = "admission.k8s.io"
_KIND: Final = "AdmissionReview"
_JSON_PATCH: Final = "JSONPatch"


class InvalidResponse(Exception):
    """The webhook's response is not a response to this request."""

    #: Begin of the error's text, as upstream.
    prefix = "received invalid webhook response: "
    #: Code in metrics, as upstream.
    code: Final = 503


class Undecodable(InvalidResponse):
    """The response is no AdmissionReview."""

    prefix = "failed to call webhook: "


class UndecodablePatch(InvalidResponse):
    """The patch of the response is not a list of operations."""

    prefix = "received undecodable patch in webhook response: "


class UnsupportedPatch(InvalidResponse):
    """The patch of the response is no JSON patch."""

    prefix = ""


class Answer(Struct, frozen=True):
    """Response of an admission webhook."""

    allowed: bool
    #: Encoded patch; empty if there is none.
    patch: bytes = b""
    patch_type: str = ""
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
    patch: bytes | None = None
    patch_type: str | None = None
    warnings: list[str] | None = None
    audit_annotations: dict[str, str] | None = None


class _Review(Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    response: _Response | None = None


_read = msgspec.json.Decoder(_Review).decode


def encode_review(uid: str, request: AdmissionRequest, sent: Kind, version: str) -> bytes:
    """Return the body of a call.

    `sent` is the version in which the webhook gets its objects, `version` that of the review.
    """
    group, body_version, kind = request.body_kind
    same = sent == request.request_kind
    review: Document = {
        "uid": uid,
        "kind": _kind(group, body_version, kind) if same else _kind(sent.group, sent.version, kind),
        "resource": _resource(sent),
    }
    if request.subresource:
        review["subResource"] = request.subresource
    review["requestKind"] = _kind(group, body_version, kind)
    review["requestResource"] = _resource(request.request_kind)
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
    api_version = f"{_GROUP}/{version}"
    return msgspec.json.encode({"kind": _KIND, "apiVersion": api_version, "request": review})


def decode_review(body: bytes, uid: str, version: str, *, mutating: bool) -> Answer:
    """Return the response of a webhook. Raises InvalidResponse."""
    try:
        review = _read(body)
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError) as error:
        raise Undecodable(f"cannot decode the response: {error}") from error
    wanted = f"{_GROUP}/{version}"
    if (review.api_version or wanted, review.kind or _KIND) != (wanted, _KIND):
        found = f"{review.api_version}, Kind={review.kind}"
        raise Undecodable(f"expected a response of {wanted}, Kind={_KIND}, got {found}")
    response = review.response
    if response is None:
        raise InvalidResponse("webhook response was absent")
    patch_type = response.patch_type or ""
    if version == "v1":
        _check(review, response, uid, mutating=mutating)
    else:
        # As upstream, which did not verify responses of the old version either.
        patch_type = _JSON_PATCH
    return Answer(
        response.allowed,
        response.patch or b"",
        patch_type,
        response.status or {},
        tuple(response.warnings or ()),
        response.audit_annotations or {},
    )


def decode_patch(answer: Answer) -> list[Any]:
    """Return the operations of the response's patch.

    Raises UndecodablePatch or UnsupportedPatch.
    """
    if not answer.patch:
        return []
    try:
        operations = msgspec.json.decode(answer.patch)
    except (msgspec.DecodeError, RecursionError) as error:
        raise UndecodablePatch(str(error)) from error
    if operations is not None and not isinstance(operations, list):
        raise UndecodablePatch("it is not a list of operations")
    if operations and answer.patch_type != _JSON_PATCH:
        raise UnsupportedPatch(f'unsupported patch type "{answer.patch_type}"')
    return operations or []


def _check(review: _Review, response: _Response, uid: str, *, mutating: bool) -> None:
    """Raise InvalidResponse unless it responds to this request, with a patch that it may have."""
    if response.uid != uid:
        raise InvalidResponse(f'expected response.uid="{uid}", got "{response.uid}"')
    if not review.kind or not review.api_version:
        group, _, version = review.api_version.rpartition("/")
        raise InvalidResponse(
            f"expected webhook response of {API_VERSION}, Kind={_KIND}, "
            f"got {group}/{version}, Kind={review.kind}"
        )
    if not mutating:
        if response.patch:
            raise InvalidResponse("validating webhook may not return response.patch")
        if response.patch_type is not None:
            raise InvalidResponse("validating webhook may not return response.patchType")
    elif response.patch and response.patch_type is None:
        raise InvalidResponse("webhook returned response.patch but not response.patchType")
    elif not response.patch and response.patch_type is not None:
        raise InvalidResponse("webhook returned response.patchType but not response.patch")
    elif response.patch and not response.patch_type:
        raise InvalidResponse('webhook returned invalid response.patchType of ""')


def _kind(group: str, version: str, kind: str) -> Document:
    return {"group": group, "version": version, "kind": kind}


def _resource(kind: Kind) -> Document:
    return {"group": kind.group, "version": kind.version, "resource": kind.plural}
