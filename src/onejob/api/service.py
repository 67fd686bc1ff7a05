"""The verbs of the Kubernetes API, without transport.

HTTP (`onejob.api.http`) and the in-process client (`onejob.client.local`) both call this.
Failures are raised as `onejob.api.errors.ApiError`.
"""

from collections.abc import AsyncIterator, Sequence

from onejob.api.kinds import Kind
from onejob.api.requests import (
    DeleteOptions,
    ListOptions,
    ListOutcome,
    Outcome,
    ServedEvent,
    WatchOptions,
    WriteOptions,
)
from onejob.api.strategy import Document


class Service:
    """`body` arguments are decoded documents (dicts); `problems` are what decoding already found
    (duplicate fields), to be reported with unknown fields according to field_validation."""

    async def create(
        self,
        kind: Kind,
        namespace: str,
        body: Document,
        options: WriteOptions,
        *,
        name: str = "",
        subresource: str = "",
        problems: Sequence[str] = (),
    ) -> Outcome:
        """POST. `name` and `subresource` for pods/binding and pods/eviction."""
        raise NotImplementedError

    async def get(self, kind: Kind, namespace: str, name: str) -> bytes:
        raise NotImplementedError

    async def list(self, kind: Kind, namespace: str, options: ListOptions) -> ListOutcome:
        raise NotImplementedError

    def watch(
        self, kind: Kind, namespace: str, options: WatchOptions
    ) -> AsyncIterator[Sequence[ServedEvent]]:
        """Batches of events. Raises Expired (before or between events) when the revision is
        too old; ends when the time is over. Close the iterator to end it early."""
        raise NotImplementedError

    async def update(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        body: Document,
        options: WriteOptions,
        *,
        subresource: str = "",
        problems: Sequence[str] = (),
    ) -> Outcome:
        raise NotImplementedError

    async def patch(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        patch_type: str,
        body: object,
        options: WriteOptions,
        *,
        subresource: str = "",
        problems: Sequence[str] = (),
    ) -> Outcome:
        """`patch_type` is json, merge, strategic or apply; `body` the decoded patch."""
        raise NotImplementedError

    async def delete(
        self, kind: Kind, namespace: str, name: str, options: DeleteOptions
    ) -> Outcome:
        """The document is the object if it stays (finalizers, grace) or for Pods and
        ServiceAccounts, else a Status."""
        raise NotImplementedError

    async def delete_collection(
        self, kind: Kind, namespace: str, selection: ListOptions, options: DeleteOptions
    ) -> ListOutcome:
        raise NotImplementedError
