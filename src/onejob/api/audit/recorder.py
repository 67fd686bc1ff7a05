"""Follows a request through its stages and writes an Event for each that the policy asks for."""

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec

from onejob.api.access.authorization import Attributes
from onejob.api.audit.log_file import AuditLog, CannotAudit
from onejob.api.audit_notes import begin_notes
from onejob.api.input.decoding import decode_body, decode_patch, decode_yaml
from onejob.api.writing.metadata import new_uid
from onejob.planning.audit import (
    COMPLETE,
    LEVELS,
    RECEIVED,
    STARTED,
    AuditPolicy,
    BadPolicy,
    Question,
    Recording,
    read_policy,
    recording_of,
)
from onejob.wire.errors import ApiError
from onejob.wire.requests import User

_LONGEST_AGENT: Final = 1024
#: What a client may name its request.
_ID: Final = re.compile(r"[A-Za-z0-9-]{1,64}")


def load_policy(path: str) -> AuditPolicy:
    """Raises CannotAudit."""
    try:
        return read_policy(decode_yaml(Path(path).read_bytes()).document)
    except OSError as error:
        raise CannotAudit(f"cannot read the audit policy {path}: {error.strerror}") from None
    except ApiError as error:
        raise CannotAudit(f"the audit policy {path} is no YAML: {error.message}") from None
    except BadPolicy as error:
        raise CannotAudit(f"the audit policy {path} is wrong: {error}") from None


class Auditor:
    def __init__(
        self, policy: AuditPolicy, log: AuditLog, now: Callable[[], datetime], rng: Random
    ) -> None:
        self.policy = policy
        self.log = log
        self.now = now
        self._rng = rng

    def begin(self, scope: Mapping[str, Any], headers: Mapping[bytes, bytes]) -> "AuditedRequest":
        """A request whose headers have come in."""
        given = headers.get(b"audit-id", b"").decode("latin-1")
        own = given if _ID.fullmatch(given) else new_uid(self._rng)
        return AuditedRequest(self, scope, headers, own)


class AuditedRequest:
    """`identified` once it is known who asks for what, then `complete`; `started` in between if the
    answer is a stream. Nothing is recorded of a request that nobody identified."""

    def __init__(
        self,
        auditor: Auditor,
        scope: Mapping[str, Any],
        headers: Mapping[bytes, bytes],
        audit_id: str,
    ) -> None:
        self._auditor = auditor
        self._scope = scope
        self._headers = headers
        self.audit_id = audit_id
        self._received_at = auditor.now()
        self._recording = Recording()
        self._event: dict[str, Any] = {}
        self._body: list[bytes] = []
        self._notes = begin_notes()

    def identified(self, asks: User | None, acts_as: User | None, wanted: Attributes) -> None:
        """`asks` None is unknown. The policy is about who asks, not whom they act as."""
        question = Question(
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
        self._recording = recording_of(self._auditor.policy, question)
        if not self._recording.level:
            return
        self._event = {
            "kind": "Event",
            "apiVersion": "audit.k8s.io/v1",
            "level": LEVELS[self._recording.level],
            "auditID": self.audit_id,
            "stage": "",
            "requestURI": _uri(self._scope),
            "verb": wanted.verb,
            "user": _shown_user(asks),
        }
        if acts_as is not None:
            self._event["impersonatedUser"] = _shown_user(acts_as)
        self._event["sourceIPs"] = [(self._scope.get("client") or ("",))[0]]
        agent = self._headers.get(b"user-agent", b"")[:_LONGEST_AGENT].decode("latin-1")
        if agent:
            self._event["userAgent"] = agent
        if wanted.resource:
            self._event["objectRef"] = _reference(wanted)
        self._write(RECEIVED)

    @property
    def wants_body(self) -> bool:
        return self._recording.has_request

    def note(self, name: str, text: str) -> None:
        self._notes[name] = text

    def body(self, piece: bytes) -> None:
        """A piece of the request's body, as it is read."""
        self._body.append(piece)

    def started(self, code: int) -> None:
        if self._recording.level:
            self._event["responseStatus"] = {"metadata": {}, "code": code}
            self._write(STARTED)

    def complete(self, code: int, body: bytes | None, content_type: bytes) -> None:
        """`body` is the answer, where it is no stream."""
        if not self._recording.level:
            return
        answer = _json(body, content_type.decode("latin-1")) if body is not None else None
        self._event["responseStatus"] = _status(code, answer)
        if self._recording.has_request and self._body:
            asked = _decoded(b"".join(self._body), self._headers.get(b"content-type", b""))
            if asked is not None:
                self._event["requestObject"] = self._without_managed_fields(asked)
        if self._recording.has_response and answer is not None:
            self._event["responseObject"] = self._without_managed_fields(answer)
        self._write(COMPLETE)

    def _write(self, stage: str) -> None:
        if stage in self._recording.omit_stages:
            return
        now = self._auditor.now()
        event = {
            **self._event,
            "stage": stage,
            "requestReceivedTimestamp": _micro(self._received_at),
            "stageTimestamp": _micro(now),
        }
        if self._notes:
            event["annotations"] = dict(self._notes)
        self._auditor.log.write(msgspec.json.encode(event) + b"\n")

    def _without_managed_fields(self, document: Any) -> Any:
        if not self._recording.omit_managed_fields or not isinstance(document, dict):
            return document
        for each in (document, *(document.get("items") or ())):
            if isinstance(each, dict) and isinstance(each.get("metadata"), dict):
                each["metadata"].pop("managedFields", None)
        return document


def _uri(scope: Mapping[str, Any]) -> str:
    path: str = scope["raw_path"].decode("ascii", "replace")
    query: str = scope["query_string"].decode("ascii", "replace")
    return f"{path}?{query}" if query else path


def _shown_user(user: User | None) -> dict[str, Any]:
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
    """Of a failure, the Status that was sent; of a success, its code."""
    if code >= 400 and isinstance(answer, dict) and answer.get("kind") == "Status":
        kept = ("metadata", "status", "message", "reason", "details", "code")
        return {name: answer[name] for name in kept if name in answer}
    return {"metadata": {}, "code": code}


def _json(body: bytes, content_type: str) -> Any:
    if not content_type.startswith("application/json"):
        return None
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError:
        return None


def _decoded(body: bytes, content_type: bytes) -> Any:
    """A body in any of the forms that are understood; None for one that is none of them."""
    kind = content_type.decode("latin-1")
    try:
        if "patch" in kind:
            return decode_patch(body, kind)[1].document
        return decode_body(body, kind).document
    except ApiError:
        return None


def _micro(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
