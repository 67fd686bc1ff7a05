"""API client interface: the seam between onejob's components and an API server.

There are two implementations: `local` in the server's process and `http` over HTTPS. Objects cross
the interface as JSON bytes. All users of the API (controllers, node agent, command line) depend
only on this module, so they run unchanged against a real cluster.
"""

from collections.abc import AsyncGenerator, Sequence
from typing import Literal, Protocol, TypeAlias

import msgspec
from msgspec import Struct

from onejob.objects.meta import Key
from onejob.objects.pod_status import PodStatusPatch
from onejob.wire.errors import ApiError
from onejob.wire.requests import EventType as EventType
from onejob.wire.requests import Variation
from onejob.wire.requests import WatchEvent as WatchEvent
from onejob.wire.requests import Written as Written

PatchType: TypeAlias = Literal["json", "merge", "strategic", "apply"]
Propagation: TypeAlias = Literal["", "Background", "Foreground", "Orphan"]

# Types created once per write or event are Structs: a frozen dataclass takes eight times as long to
# build.


class Create(msgspec.Struct, frozen=True, gc=False):
    resource: str
    namespace: str
    #: The document, or the template that `variation` is applied to.
    body: bytes
    #: Replace a stored object of this name if it is damaged and cannot be decoded. For objects that
    #: the server creates by itself; no effect on other API servers.
    replaces_damaged: bool = False
    variation: Variation | None = None

    @property
    def document(self) -> bytes:
        """The document of the object; with a variation, it is encoded by each call.

        A client in the server's process evaluates a template once and needs no document.
        """
        return self.body if self.variation is None else self.variation.of(self.body)


class Replace(msgspec.Struct, frozen=True, gc=False):
    key: Key
    document: bytes
    #: "" or "status".
    subresource: str = ""


class Patch(msgspec.Struct, frozen=True, gc=False):
    key: Key
    #: The patch, or the value that it is encoded from.
    content: bytes | PodStatusPatch
    type: PatchType = "strategic"
    subresource: str = ""

    @property
    def body(self) -> bytes:
        """The encoded patch; a value is encoded by each call.

        A client in the server's process needs no encoded patch.
        """
        content = self.content
        return content if type(content) is bytes else msgspec.json.encode(content)


class Delete(msgspec.Struct, frozen=True, gc=False):
    key: Key
    propagation: Propagation = ""
    grace_seconds: int | None = None
    #: Preconditions: the server responds with Conflict if the live object differs.
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


Result: TypeAlias = Written | ApiError


class Listing(Struct, frozen=True):
    """Page of a list: encoded documents at one revision.

    A watch after `revision` continues without gaps.
    """

    documents: Sequence[bytes]
    revision: int
    #: Opaque; pass it to `list` to get the next page. "" on the last page.
    continue_token: str = ""


class Selection(Struct, frozen=True):
    """Selection of a resource's objects.

    Namespace "" means all; selectors use Kubernetes' syntax.
    """

    resource: str
    namespace: str = ""
    labels: str = ""
    fields: str = ""


class Client(Protocol):
    """Access to one API server.

    Guarantees:
        A write that returned is durable. Writes return the revision at which caches include them.
        `get` returns the newest version. All pages of a list have the same revision.

    Requirements:
        The caller continues a list with `limit` by passing back `Listing.continue_token`. It
        follows a list by a watch after `Listing.revision`.

    Errors:
        All failures are `ApiError`s. A watch raises `Expired` if its revision is too old (then list
        again) and ends normally when the server closes it (then watch again).

    Concurrency:
        All methods may be called concurrently from tasks of one event loop. Cancelling a write does
        not undo it.
    """

    async def get(self, key: Key) -> bytes:
        """Return the newest version of an object, encoded.

        Raises:
            NotFound: if it does not exist.
        """
        ...

    async def list(self, what: Selection, *, limit: int = 0, token: str = "") -> Listing:
        """Return the selected objects, or a page of them.

        `limit` 0 means no limit. `token` is the `continue_token` of the previous page, to be passed
        with the same selection.
        """
        ...

    def watch(self, what: Selection, *, after: int) -> AsyncGenerator[Sequence[WatchEvent], None]:
        """Yield batches of changes after revision `after`. Closing the iterator ends the watch."""

    async def write(self, op: Op) -> Written:
        """Perform one write and return its result.

        Raises:
            ApiError: if the server refuses the write, or cannot be reached.
        """

    async def write_many(self, ops: Sequence[Op]) -> Sequence[Result]:
        """Perform independent writes and return one result each, in order.

        Writes to the same object are attempted in order. Not a transaction: some may fail while
        others succeed, and their errors are returned rather than raised.

        Raises:
            ApiError: if a local client, which commits several writes together, cannot commit.
        """

    async def close(self) -> None:
        """Release the client's connections; it must not be used afterwards."""
