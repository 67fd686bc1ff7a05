"""Attributes of a write under dynamic admission."""

from typing import Final, Literal, TypeAlias

from msgspec import Struct, field

from onejob.api.strategy import Document
from onejob.wire.kinds import Kind
from onejob.wire.requests import DeleteOptions, User, WriteOptions

Operation: TypeAlias = Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]

GROUP: Final = "admissionregistration.k8s.io"
#: Resources whose objects configure dynamic admission.
CONFIGURATIONS: Final = frozenset(
    f"{plural}.{GROUP}"
    for plural in (
        "mutatingadmissionpolicies",
        "mutatingadmissionpolicybindings",
        "mutatingwebhookconfigurations",
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
        "validatingwebhookconfigurations",
    )
)
_META: Final = "meta.k8s.io/v1"


class Requester(Struct, frozen=True):
    """Attributes shared by all writes of one API request."""

    user: User
    dry_run: bool = False
    #: Field manager and validation, if the client named them.
    given: tuple[tuple[str, str], ...] = ()
    #: Kind of the client's request, if it is stored as another one.
    requested: Kind | None = None
    #: Options of a deletion; None for all other writes.
    deletion: DeleteOptions | None = None

    def options(self, operation: Operation) -> Document:
        """Return the CreateOptions, UpdateOptions or DeleteOptions of an operation; {} if it has
        none."""
        if operation == "CONNECT":
            return {}
        options: Document = {"kind": f"{operation.capitalize()}Options", "apiVersion": _META}
        if self.dry_run:
            options["dryRun"] = ["All"]
        if operation == "DELETE":
            return options | _deletion(self.deletion or DeleteOptions())
        return options | dict(self.given)


class AdmissionRequest(Struct, frozen=True):
    """One write, as policies and webhooks see it. Its documents must not be modified."""

    operation: Operation
    #: Kind in which the resource is stored; see `body_kind` for the kind of the documents.
    kind: Kind
    namespace: str
    #: Empty if the name is generated after the mutating phase, or if a collection is deleted.
    name: str
    user: User
    subresource: str = ""
    #: New state; None for a deletion.
    object: Document | None = None
    #: Stored state; None for a new object.
    old_object: Document | None = None
    #: CreateOptions, UpdateOptions or DeleteOptions.
    options: Document = field(default_factory=dict)
    dry_run: bool = False
    #: Kind that the client named, if it is stored as another one.
    requested: Kind | None = None

    @property
    def request_kind(self) -> Kind:
        """Kind that the client named."""
        return self.requested or self.kind

    @property
    def body_kind(self) -> tuple[str, str, str]:
        """Group, version and kind of the client's document: those of the subresource if it has
        its own."""
        kind = self.request_kind
        sub = kind.subresource(self.subresource) if self.subresource else None
        if sub is not None and sub.kind:
            return sub.group, sub.version or "v1", sub.kind
        return kind.group, kind.version, kind.kind


def requester_of(options: WriteOptions | DeleteOptions) -> Requester:
    if isinstance(options, DeleteOptions):
        return Requester(
            options.user, options.dry_run, requested=options.requested, deletion=options
        )
    return Requester(options.user, options.dry_run, options.given, options.requested)


def is_exempt(kind: Kind) -> bool:
    """Return whether objects of a kind configure dynamic admission.

    They are never subject to it, because a faulty configuration could not be removed any more.
    """
    return kind.group == GROUP


def _deletion(options: DeleteOptions) -> Document:
    """Return delete options as a document, without unset ones."""
    found: Document = {}
    if options.grace_seconds is not None:
        found["gracePeriodSeconds"] = options.grace_seconds
    if options.propagation:
        found["propagationPolicy"] = options.propagation
    conditions = {"uid": options.uid, "resourceVersion": options.resource_version}
    if given := {name: value for name, value in conditions.items() if value}:
        found["preconditions"] = given
    return found
