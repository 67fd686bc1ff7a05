"""Conversion of custom objects between versions, by the webhooks of their definitions."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Any, Final

import msgspec
from msgspec import Struct

from onejob.api.strategy import Document
from onejob.api.writing.metadata import new_uid
from onejob.webhooks.calling import CallFailed, WebhookCaller
from onejob.webhooks.configurations import read_client
from onejob.wire.errors import ConversionFailed
from onejob.wire.kinds import Kind

API_VERSION: Final = "apiextensions.k8s.io/v1"
_KIND: Final = "ConversionReview"
#: Time limit of one call; the same as upstream's.
_SECONDS: Final = 30.0
#: Bytes of objects in one request; the response may be three times as long.
_BATCH_BYTES: Final = 1024 * 1024


class _Response(Struct, rename="camel"):
    uid: str = ""
    converted_objects: list[Document] = []
    result: dict[str, Any] = {}


class _Review(Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    response: _Response | None = None


_read = msgspec.json.Decoder(_Review).decode


class WebhookConverter:
    """Calls to conversion webhooks. `configuration` returns a definition's spec.conversion."""

    def __init__(
        self,
        caller: WebhookCaller,
        configuration: Callable[[Kind], Mapping[str, Any]],
        rng: Random,
    ) -> None:
        self._caller = caller
        self._configuration = configuration
        self._rng = rng

    async def convert(self, documents: Sequence[Document], wanted: Kind) -> list[Document]:
        """Return the documents in the version of `wanted`, in order. Raises ConversionFailed.

        Documents in that version are returned as they are.
        """
        results = list(documents)
        places = [
            place
            for place, document in enumerate(documents)
            if document["apiVersion"] != wanted.api_version
        ]
        for batch in _batches(documents, places):
            sent = [documents[place] for place in batch]
            for place, converted in zip(batch, await self._call(sent, wanted), strict=True):
                results[place] = converted
        return results

    async def _call(self, sent: Sequence[Document], wanted: Kind) -> list[Document]:
        source = f"{sent[0]['apiVersion']}, Kind={wanted.kind}"
        client = (self._configuration(wanted).get("webhook") or {}).get("clientConfig") or {}
        uid = new_uid(self._rng)
        request = {"uid": uid, "desiredAPIVersion": wanted.api_version, "objects": sent}
        body = {"kind": _KIND, "apiVersion": API_VERSION, "request": request}
        try:
            answer = await self._caller.call(
                read_client(client), msgspec.json.encode(body), _SECONDS
            )
            converted = _converted_objects(answer, uid, len(sent))
            return [
                _checked(index, before, after, wanted)
                for index, (before, after) in enumerate(zip(sent, converted, strict=True))
            ]
        except (CallFailed, _Invalid) as error:
            raise ConversionFailed(f"conversion webhook for {source} failed: {error}") from error
        except _WrongObjects as error:
            raise ConversionFailed(f"conversion webhook for {source} returned {error}") from error


class _Invalid(Exception):
    """The response is not one to the request, or reports a failure."""


class _WrongObjects(Exception):
    """The objects of the response are not those that were sent, converted."""


def _converted_objects(body: bytes, uid: str, count: int) -> list[Document]:
    try:
        review = _read(body)
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError) as error:
        raise _Invalid(f"cannot decode the response: {error}") from error
    if (review.api_version, review.kind) != (API_VERSION, _KIND):
        found = f"{review.api_version}, Kind={review.kind}"
        raise _Invalid(f"expected webhook response of {API_VERSION}, Kind={_KIND}, got {found}")
    response = review.response
    if response is None:
        raise _Invalid("no response provided")
    if response.uid != uid:
        raise _Invalid(f'expected response.uid="{uid}", got "{response.uid}"')
    status = response.result.get("status") or ""
    if status != "Success":
        text = f"response.result.status was '{status}', not 'Success'"
        raise _Invalid(str(response.result.get("message") or text))
    if len(response.converted_objects) != count:
        raise _WrongObjects(f"{len(response.converted_objects)} objects, expected {count}")
    return response.converted_objects


def _checked(index: int, before: Document, after: Document, wanted: Kind) -> Document:
    """Return a converted object with the metadata of the original.

    A webhook may change labels and annotations only. Raises _WrongObjects.
    """
    for what, expected, found in (
        ("groupVersion", wanted.api_version, after.get("apiVersion")),
        ("kind", before["kind"], after.get("kind")),
    ):
        if found != expected:
            raise _WrongObjects(
                f"invalid object at index {index}: invalid {what} "
                f"(expected {expected}, received {found})"
            )
    metadata = after.get("metadata", {})
    if not isinstance(metadata, dict):
        raise _WrongObjects("invalid metadata: it is not an object")
    for name, shown in (("name", "name"), ("namespace", "namespace"), ("uid", "UID")):
        expected, found = before["metadata"].get(name, ""), metadata.get(name, "")
        if found != expected:
            text = f"must have the same {shown}: {expected} != {found}"
            raise _WrongObjects(f"invalid object: {text}")
    kept = {
        name: value
        for name, value in before["metadata"].items()
        if name not in ("labels", "annotations")
    }
    changed = {name: metadata[name] for name in ("labels", "annotations") if metadata.get(name)}
    first = {"apiVersion": after["apiVersion"], "kind": after["kind"], "metadata": kept | changed}
    return first | {name: value for name, value in after.items() if name not in first}


def _batches(documents: Sequence[Document], places: Sequence[int]) -> Iterator[list[int]]:
    """Yield positions of documents to send together: of one version and a bounded size."""
    batch: list[int] = []
    size = 0
    for place in places:
        length = len(msgspec.json.encode(documents[place]))
        fits = batch and documents[batch[0]]["apiVersion"] == documents[place]["apiVersion"]
        if batch and (not fits or size + length > _BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(place)
        size += length
    if batch:
        yield batch
