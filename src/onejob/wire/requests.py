"""Options and outcomes of API requests, independent of the transport."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final, Literal, TypeAlias, final

import msgspec
from msgspec import Struct, field

from onejob.objects.meta import Key, key_at
from onejob.wire.kinds import Kind

NOWHERE: Final = Key("", "", "")


class User(Struct, frozen=True):
    """Identity of the requesting user."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


#: onejob's own controllers and node agent: trusted, in this process, no managedFields kept.
INTERNAL = User("system:onejob", groups=("system:masters",))


class Target(msgspec.Struct, frozen=True, gc=False):
    """Object, or subresource of an object, that a write applies to."""

    kind: Kind
    namespace: str
    name: str
    subresource: str = ""

    @property
    def key(self) -> Key:
        """Key under which the object is stored."""
        return key_at((self.kind.storage, self.namespace, self.name))


class WriteOptions(Struct, frozen=True):
    user: User = INTERNAL
    dry_run: bool = False
    #: Empty if none was given; HTTP fills in the default from the User-Agent.
    field_manager: str = ""
    #: Strict, Warn or Ignore.
    field_validation: str = "Warn"
    #: Field manager and validation as the client named them, for admission.
    given: tuple[tuple[str, str], ...] = ()
    force: bool = False
    #: Set by onejob's own writers: their documents are clean by construction, so pruning and schema
    #: checks are skipped, and no managedFields are kept (both cost more than the write).
    trusted: bool = False
    #: Called before an apply creates a missing object; raises Forbidden. None allows the creation.
    require_create: Callable[[], None] | None = None
    #: Kind of the client's request, if it is stored as another one.
    requested: Kind | None = None
    #: Whether dynamic admission has evaluated the write already.
    admitted: bool = False


class ListOptions(Struct, frozen=True):
    label_selector: str = ""
    field_selector: str = ""
    limit: int = 0
    continue_token: str = ""
    #: As in the query: "" newest, "0" any, N at least that new.
    resource_version: str = ""
    resource_version_match: str = ""


class WatchOptions(Struct, frozen=True):
    label_selector: str = ""
    field_selector: str = ""
    resource_version: str = ""
    resource_version_match: str = ""
    allow_bookmarks: bool = False
    #: None derives it from the revision: existing objects are sent first if no revision is given.
    send_initial_events: bool | None = None
    timeout_seconds: int | None = None


class DeleteOptions(Struct, frozen=True):
    user: User = INTERNAL
    dry_run: bool = False
    #: "", Background, Foreground or Orphan.
    propagation: str = ""
    grace_seconds: int | None = None
    uid: str = ""
    resource_version: str = ""
    #: True to delete an object whose document is unreadable, regardless of its contents.
    despite_damage: bool = False
    #: Kind of the client's request, if it is stored as another one.
    requested: Kind | None = None
    #: Whether all objects of a selection are deleted: the request has no name.
    collective: bool = False


class Variation(msgspec.Struct, frozen=True, gc=False):
    """Fields in which a Pod differs from others of the same template.

    Labels and annotations are added to the template's, or replace equally named ones; the rest
    replaces the template's fields.
    """

    generate_name: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    hostname: str

    def of(self, template: bytes) -> bytes:
        """Return the document of the Pod."""
        pod = msgspec.json.decode(template)
        metadata = pod["metadata"]
        own = {
            **metadata,
            "generateName": self.generate_name,
            "labels": {**metadata.get("labels", {}), **self.labels},
            "annotations": {**metadata.get("annotations", {}), **self.annotations},
        }
        spec = {"hostname": self.hostname, **pod["spec"]}
        return msgspec.json.encode({**pod, "metadata": own, "spec": spec})


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """Response to a write."""

    code: int
    document: bytes
    revision: int = 0
    warnings: tuple[str, ...] = ()


@final
class Written(msgspec.Struct, frozen=True, gc=False):
    """Result of a successful write.

    A cache that has reached `revision` includes the write. Over HTTP, the revision of a Bind, an
    Evict or an immediate Delete may be that of a later write. `document` is the object as stored;
    for a Delete that removed it at once, its last version. It may be empty over HTTP.
    """

    revision: int
    document: bytes
    #: Name of a created object, if it is known without decoding the document.
    created_name: str = ""

    @property
    def name(self) -> str:
        """Name of the object."""
        return self.created_name or _read_name(self.document).metadata.name


class _NamedMeta(msgspec.Struct):
    name: str


class _Named(msgspec.Struct):
    metadata: _NamedMeta


_read_name = msgspec.json.Decoder(_Named).decode


class ListOutcome(msgspec.Struct, frozen=True):
    #: Whole documents, with apiVersion and kind (HTTP strips these from list items).
    documents: tuple[bytes, ...]
    revision: int
    continue_token: str = ""
    remaining: int | None = None


EventType: TypeAlias = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]


class WatchEvent(msgspec.Struct, frozen=True, gc=False):
    """One event of a watch, filtered and typed for its watcher."""

    type: EventType
    #: Key of the object; `NOWHERE` for a BOOKMARK.
    key: Key
    revision: int
    #: The object; its last state for DELETED; for BOOKMARK only the revision is meaningful.
    document: bytes
    #: True if no reaction is required: caches may apply it together with the object's next change.
    quiet: bool = False
    #: The new finalizers and the revision of the version before, if nothing else has changed.
    finalizers: tuple[tuple[str, ...], int] | None = None


class LogOptions(Struct, frozen=True):
    """Options of `GET …/log`."""

    follow: bool = False
    #: True for the log of the instance before the last restart.
    previous: bool = False
    timestamps: bool = False
    tail_lines: int | None = None
    limit_bytes: int | None = None
    since_seconds: int | None = None
    since_time: datetime | None = None
