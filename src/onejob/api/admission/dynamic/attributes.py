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
    field_manager: str = ""
    field_validation: str = ""
    #: Options of a deletion; None for all other writes.
    deletion: DeleteOptions | None = None

    def options(self, operation: Operation) -> Document:
        """Return the CreateOptions, UpdateOptions or DeleteOptions of an operation."""
        options: Document = {"kind": f"{operation.capitalize()}Options", "apiVersion": _META}
        if self.dry_run:
            options["dryRun"] = ["All"]
        if operation == "DELETE":
            return options | _deletion(self.deletion or DeleteOptions())
        if self.field_manager:
            options["fieldManager"] = self.field_manager
        if self.field_validation:
            options["fieldValidation"] = self.field_validation
        return options


class AdmissionRequest(Struct, frozen=True):
    """One write, as policies and webhooks see it. Its documents must not be modified."""

    operation: Operation
    #: Kind of the resource; see `body_kind` for the kind of the documents.
    kind: Kind
    namespace: str
    #: Empty if the name is generated after the mutating phase.
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

    @property
    def body_kind(self) -> tuple[str, str, str]:
        """Group, version and kind of the documents: those of the subresource if it has its own."""
        sub = self.kind.subresource(self.subresource) if self.subresource else None
        if sub is not None and sub.kind:
            return sub.group, sub.version, sub.kind
        return self.kind.group, self.kind.version, self.kind.kind


def requester_of(options: WriteOptions | DeleteOptions) -> Requester:
    if isinstance(options, DeleteOptions):
        return Requester(options.user, options.dry_run, deletion=options)
    return Requester(options.user, options.dry_run, options.field_manager, options.field_validation)


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
