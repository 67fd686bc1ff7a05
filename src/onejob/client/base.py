"""The client interface, with two implementations: in this process and over HTTPS.

Documents cross it as bytes. Everything that uses the API, controllers and node agent and
command line alike, knows only this module, so it runs unchanged against a real cluster.
"""

from collections.abc import AsyncGenerator, Sequence
from typing import Literal, Protocol, TypeAlias

import msgspec
from msgspec import Struct

from onejob.objects.meta import Key
from onejob.wire.errors import ApiError
from onejob.wire.requests import EventType as EventType
from onejob.wire.requests import WatchEvent as WatchEvent

PatchType: TypeAlias = Literal["json", "merge", "strategic", "apply"]
Propagation: TypeAlias = Literal["", "Background", "Foreground", "Orphan"]

# What there is one of per write or event is a Struct: a frozen dataclass takes eight times as
# long to build.


class Create(msgspec.Struct, frozen=True, gc=False):
    resource: str
    namespace: str
    document: bytes
    #: Whether a stored object of this name is replaced if it cannot be read: for objects that a
    #: server makes by itself. Without effect on the server of somebody else.
    replaces_damaged: bool = False


class Replace(msgspec.Struct, frozen=True, gc=False):
    key: Key
    document: bytes
    #: "" or "status"
    subresource: str = ""


class Patch(msgspec.Struct, frozen=True, gc=False):
    key: Key
    body: bytes
    type: PatchType = "strategic"
    subresource: str = ""


class Delete(msgspec.Struct, frozen=True, gc=False):
    key: Key
    propagation: Propagation = ""
    grace_seconds: int | None = None
    #: Preconditions: refused with Conflict if the live object differs.
    uid: str = ""
    resource_version: str = ""


class Bind(msgspec.Struct, frozen=True, gc=False):
    """Assign a Pod to a node."""

    key: Key
    node: str
    uid: str = ""


class Evict(msgspec.Struct, frozen=True, gc=False):
    key: Key
    grace_seconds: int | None = None


Op: TypeAlias = Create | Replace | Patch | Delete | Bind | Evict


class Written(msgspec.Struct, frozen=True, gc=False):
    """What a write left behind. A cache that has reached `revision` shows the write: over HTTP
    the revision of a Bind, an Evict or an immediate Delete may be that of a later write.
    `document` is the object as stored (for a Delete that removed it at once, the last version;
    may be empty over HTTP)."""

    revision: int
    document: bytes


Result: TypeAlias = Written | ApiError


class Listing(Struct, frozen=True):
    documents: Sequence[bytes]
    revision: int
    #: Opaque; pass it back to get the next page.
    continue_token: str = ""


class Selection(Struct, frozen=True):
    """Which objects of a resource: namespace "" means all; selectors in Kubernetes' syntax."""

    resource: str
    namespace: str = ""
    labels: str = ""
    fields: str = ""


class Client(Protocol):
    """Failures are `ApiError`s. A watch raises `Expired` when its revision is too old (then
    list again) and ends normally when the server closes it (then watch again)."""

    async def get(self, key: Key) -> bytes: ...

    async def list(self, what: Selection, *, limit: int = 0, token: str = "") -> Listing: ...

    def watch(self, what: Selection, *, after: int) -> AsyncGenerator[Sequence[WatchEvent], None]:
        """Changes after a revision, in batches. Closing the iterator ends the watch."""

    async def write(self, op: Op) -> Written:
        """One write; raises its error."""

    async def write_many(self, ops: Sequence[Op]) -> Sequence[Result]:
        """Independent writes, one result each; those of one object are tried in order. Locally
        they share commits. Not a transaction: some may fail while others succeed."""

    async def close(self) -> None: ...
