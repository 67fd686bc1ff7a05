"""Requests in other versions of their kind."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from msgspec.structs import replace

from onejob.api.admission.dynamic.attributes import AdmissionRequest
from onejob.api.strategy import Document
from onejob.wire.kinds import Kind
from onejob.wire.registry import KindRegistry

#: Returns objects in another version of their kind. Raises ConversionFailed.
Convert: TypeAlias = Callable[[Sequence[Document], Kind], Awaitable[Sequence[Document]]]


def other_versions(kinds: KindRegistry, kind: Kind) -> Sequence[Kind]:
    return [other for other in kinds.kinds if other.storage == kind.storage and other != kind]


async def in_version(
    request: AdmissionRequest, version: Kind, convert: Convert
) -> AdmissionRequest:
    """Return the request with its objects in another version. Raises ConversionFailed."""
    if version == request.kind or request.subresource not in ("", "status"):
        return request
    documents = [doc for doc in (request.object, request.old_object) if doc is not None]
    converted = list(await convert(documents, version))
    new = None if request.object is None else converted.pop(0)
    old = None if request.old_object is None else converted.pop(0)
    return replace(request, object=new, old_object=old)
