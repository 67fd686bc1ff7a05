"""Audit recorder: writes an Event for each stage of a request that the policy selects."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec

from onejob.api.access.authorization import Attributes
from onejob.api.audit.log_file import AuditLog, CannotAudit
from onejob.api.audit_notes import begin_notes
from onejob.api.decoding.bodies import MAX_BODY_BYTES, decode_body, decode_patch, decode_yaml
from onejob.api.request_ids import RequestIds
from onejob.planning.audit import (
    COMPLETE,
    LEVELS,
    RECEIVED,
    STARTED,
    AuditAttributes,
    AuditPolicy,
    BadPolicy,
    Recording,
    read_policy,
    recording_of,
)
from onejob.wire.errors import ApiError
from onejob.wire.requests import User

_MAX_USER_AGENT_LENGTH: Final = 1024
#: Body size above which the writing thread creates the event, because decoding megabytes of YAML
#: takes seconds.
_MADE_AT_ONCE: Final = 32 * 1024


def load_policy(path: str) -> AuditPolicy:
    """Return the parsed policy file. Raises CannotAudit."""
    try:
        return read_policy(decode_yaml(Path(path).read_bytes()).document)
    except OSError as error:
        raise CannotAudit(f"cannot read the audit policy {path}: {error.strerror}") from None
    except ApiError as error:
        raise CannotAudit(f"the audit policy {path} is not valid YAML: {error.message}") from None
    except BadPolicy as error:
        raise CannotAudit(f"the audit policy {path} is wrong: {error}") from None


class Auditor:
    """Factory of audit records, by the policy."""

    def __init__(
        self, policy: AuditPolicy, log: AuditLog, now: Callable[[], datetime], rng: Random
    ) -> None:
        self.policy = policy
        self.log = log
        self.now = now
        self._ids = RequestIds(rng)

    def begin(
        self, uri: str, headers: Mapping[bytes, bytes], request_id: bytes = b"", address: str = ""
    ) -> "AuditedRequest":
        """Return the audit record of a request whose headers have arrived.

        `uri` is its path and query, `address` the client's, if known.
        """
        audit_id = (request_id or self._ids.of(headers)).decode()
        return AuditedRequest(self, uri, headers, audit_id, address)


class _Record(msgspec.Struct, frozen=True):
    """Policy decision and event for one authorization request."""

    wanted: Attributes
    recording: Recording
    event: dict[str, Any]


class AuditedRequest:
    """Audit record of one request.

    Call `identified` when user and target are known, then `complete`; in between, call `started` if
    the response is a stream. A request that is never identified is not recorded.
    """

    def __init__(
        self,
        auditor: Auditor,
        uri: str,
        headers: Mapping[bytes, bytes],
        audit_id: str,
        address: str,
    ) -> None:
        self._auditor = auditor
        self._uri = uri
        self._address = address
        self._headers = headers
        self.audit_id = audit_id
        self._received_at = auditor.now()
        self._asks: User | None = None
        self._acts_as: User | None = None
        #: Records of this request; may be empty before `complete`.
        self._records: list[_Record] = []
        #: Attributes to record if the request turns out to stand for no other.
        self._otherwise: Attributes | None = None
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._notes = begin_notes()

    def identified(
        self, asks: User | None, acts_as: User | None, wanted: Attributes, *, deferred: bool = False
    ) -> None:
        """Set user and target of the request.

        `asks` is None if the user is unknown. The policy applies to `asks`, not to the impersonated
        user `acts_as`. With `deferred`, `wanted` is recorded only if `stands_for` is never called.
        """
        self._asks, self._acts_as = asks, acts_as
        if deferred:
            self._otherwise = wanted
        else:
            self._record(wanted)

    def stands_for(self, wanted: Attributes) -> None:
        """Record an API request that this one performs, possibly among others.

        Bodies are omitted, because they do not belong to that request.
        """
        if all(wanted != record.wanted for record in self._records):
            self._record(wanted, on_a_page=True)

    def _record(self, wanted: Attributes, *, on_a_page: bool = False) -> None:
        asks, acts_as = self._asks, self._acts_as
        self._otherwise = None
        question = AuditAttributes(
            asks.name if asks is not None else "",
            asks.groups if asks is not None else (),
            wanted.verb,
            wanted.resource,
            wanted.subresource,
            wanted.group,
            wanted.namespace,
            wanted.name,
            wanted.path,
        )
        recording = recording_of(self._auditor.policy, question)
        if on_a_page:
            recording = msgspec.structs.replace(recording, of_resource=False)
        if not recording.level:
            return
        event: dict[str, Any] = {
            "kind": "Event",
            "apiVersion": "audit.k8s.io/v1",
            "level": LEVELS[recording.level],
            "auditID": self.audit_id,
            "stage": "",
            "requestURI": self._uri,
            "verb": wanted.verb,
            "user": _user_document(asks),
        }
        if acts_as is not None:
            event["impersonatedUser"] = _user_document(acts_as)
        if self._address:
            event["sourceIPs"] = [self._address]
        agent = self._headers.get(b"user-agent", b"")[:_MAX_USER_AGENT_LENGTH].decode("latin-1")
        if agent:
            event["userAgent"] = agent
        if wanted.resource:
            event["objectRef"] = _reference(wanted)
        record = _Record(wanted, recording, event)
        self._records.append(record)
        self._write(record, RECEIVED)

    @property
    def wants_body(self) -> bool:
        return any(record.recording.has_request for record in self._records)

    def note(self, name: str, text: str) -> None:
        """Set an annotation of the event."""
        self._notes[name] = text

    def body(self, piece: bytes) -> None:
        """Add a piece of the request body as it is read.

        A body that is too large to be served is discarded.
        """
        self._body_bytes += len(piece)
        if self._body_bytes <= MAX_BODY_BYTES:
            self._body.append(piece)
        else:
            self._body = []

    def started(self, code: int) -> None:
        """Record that the response to a long-running request has begun."""
        for record in self._all_records():
            record.event["responseStatus"] = {"metadata": {}, "code": code}
            self._write(record, STARTED)

    def complete(self, code: int, body: bytes | None, content_type: bytes) -> None:
        """Write the final events. `body` is the response body; None for a stream."""
        for record in self._all_records():
            self._complete(record, code, body, content_type)

    def _complete(
        self, record: _Record, code: int, body: bytes | None, content_type: bytes
    ) -> None:
        event = self._at_stage(record, COMPLETE)
        if event is None:
            return
        recording = record.recording
        asked = b"".join(self._body) if recording.has_request else b""
        answered = body if body is not None and (code >= 400 or recording.has_response) else b""
        asked_type = self._headers.get(b"content-type", b"")

        def make() -> bytes:
            answer = _json(answered, content_type.decode("latin-1")) if answered else None
            event["responseStatus"] = _status(code, answer)
            said = _decoded(asked, asked_type) if asked else None
            if said is not None:
                event["requestObject"] = _without_managed_fields(recording, said)
            if recording.has_response and answer is not None:
                event["responseObject"] = _without_managed_fields(recording, answer)
            return msgspec.json.encode(event) + b"\n"

        size = len(asked) + len(answered)
        if size > _MADE_AT_ONCE:
            self._auditor.log.write_later(make, size)
        else:
            self._auditor.log.write(make())

    def _all_records(self) -> Sequence[_Record]:
        if self._otherwise is not None:
            self._record(self._otherwise)
        return self._records

    def _write(self, record: _Record, stage: str) -> None:
        """Write the event of a stage, if the policy selects that stage."""
        event = self._at_stage(record, stage)
        if event is not None:
            self._auditor.log.write(msgspec.json.encode(event) + b"\n")

    def _at_stage(self, record: _Record, stage: str) -> dict[str, Any] | None:
        """Return the event of a stage; None if the policy omits it."""
        if stage in record.recording.omit_stages:
            return None
        event = {
            **record.event,
            "stage": stage,
            "requestReceivedTimestamp": _format_micro_time(self._received_at),
            "stageTimestamp": _format_micro_time(self._auditor.now()),
        }
        if self._notes:
            event["annotations"] = dict(self._notes)
        return event


def _without_managed_fields(recording: Recording, document: Any) -> Any:
    """Remove managedFields from a document, in place, if the policy omits them, and return it."""
    if not recording.omit_managed_fields or not isinstance(document, dict):
        return document
    for each in (document, *(document.get("items") or ())):
        if isinstance(each, dict) and isinstance(each.get("metadata"), dict):
            each["metadata"].pop("managedFields", None)
    return document


def _user_document(user: User | None) -> dict[str, Any]:
    """Return a user as in the `user` field of an audit event."""
    if user is None:
        return {}
    shown: dict[str, Any] = {"username": user.name}
    if user.uid:
        shown["uid"] = user.uid
    if user.groups:
        shown["groups"] = list(user.groups)
    if user.extra:
        shown["extra"] = {name: list(values) for name, values in user.extra.items()}
    return shown


def _reference(wanted: Attributes) -> dict[str, str]:
    """Return the object that a request is about, without empty fields."""
    fields = {
        "resource": wanted.resource,
        "namespace": wanted.namespace,
        "name": wanted.name,
        "apiGroup": wanted.group,
        "apiVersion": wanted.version,
        "subresource": wanted.subresource,
    }
    return {name: value for name, value in fields.items() if value}


def _status(code: int, answer: Any) -> dict[str, Any]:
    """Return the responseStatus: the sent Status for a failure, only the code for a success."""
    if code >= 400 and isinstance(answer, dict) and answer.get("kind") == "Status":
        kept = ("metadata", "status", "message", "reason", "details", "code")
        return {name: answer[name] for name in kept if name in answer}
    return {"metadata": {}, "code": code}


def _json(body: bytes, content_type: str) -> Any:
    """Return a decoded JSON body; None for other types and malformed bodies."""
    if not content_type.startswith("application/json"):
        return None
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError:
        return None


def _decoded(body: bytes, content_type: bytes) -> Any:
    """Return the decoded body in any supported format; None if it cannot be decoded."""
    kind = content_type.decode("latin-1")
    try:
        if "patch" in kind:
            return decode_patch(body, kind)[1].document
        return decode_body(body, kind).document
    except ApiError:
        return None


def _format_micro_time(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
