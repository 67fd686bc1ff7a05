"""ConfigMaps and Secrets that one container uses, fetched by key and decoded on first use."""

import asyncio
import base64
import binascii
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from onejob.node.runtime import Fetch
from onejob.node.setup.environment import SECRETS, ConfigProblem
from onejob.objects.meta import Key
from onejob.wire.errors import ApiError, NotFound

#: Most bytes of documents per container; another copy is held while it starts.
MAX_BYTES: Final = 64 * 1024 * 1024
#: Settings larger than this, in bytes, are decoded in a thread.
_INLINE_BYTES: Final = 128 * 1024
#: Documents fetched between two yields to the event loop.
_FETCHES_PER_TURN: Final = 100


class FetchedSettings:
    """ConfigMap and Secret documents by key; None for one that does not exist. Not thread-safe.

    The documents belong to the store, so containers waiting to start hold no copies.
    """

    def __init__(self, documents: Mapping[Key, bytes | None]) -> None:
        self._documents = documents
        self._decoded: dict[Key, Mapping[str, bytes] | None] = {}

    @property
    def is_large(self) -> bool:
        """Return whether decoding takes too long for the event loop."""
        return sum(len(found or b"") for found in self._documents.values()) > _INLINE_BYTES

    def values(self, key: Key) -> Mapping[str, bytes] | None:
        """Return the decoded data of one object, None if it does not exist. Raises ConfigProblem if
        it is malformed."""
        if key not in self._decoded:
            document = self._documents[key]
            self._decoded[key] = None if document is None else _read(key, document)
        return self._decoded[key]

    def decode(self) -> None:
        """Decode all documents in advance, so that `values` only looks them up. Raises
        ConfigProblem."""
        for key in self._documents:
            self.values(key)


NO_SETTINGS = FetchedSettings({})


async def fetch_settings(fetch: Fetch, keys: Iterable[Key]) -> FetchedSettings:
    """Fetch each document once. Raises ConfigProblem if the API fails or the documents exceed
    `MAX_BYTES`."""
    found: dict[Key, bytes | None] = {}
    room = MAX_BYTES
    for key in keys:
        if key in found:
            continue
        try:
            document = found[key] = await fetch(key)
            room -= len(document)
        except NotFound:
            found[key] = None
        except ApiError as error:
            raise ConfigProblem(error.message) from error
        if room < 0:
            raise ConfigProblem(
                f"the ConfigMaps and Secrets of this container need more than {MAX_BYTES >> 20} MiB"
            )
        if len(found) % _FETCHES_PER_TURN == 0:
            await asyncio.sleep(0)
    return FetchedSettings(found)


def _read(key: Key, document: bytes) -> Mapping[str, bytes]:
    """Return the decoded data of a ConfigMap or Secret."""
    decoded: dict[str, Any] = msgspec.json.decode(document)
    texts: dict[str, str] = decoded.get("data") or {}
    try:
        if key.resource == SECRETS:
            return {name: base64.b64decode(text) for name, text in texts.items()}
        binary: dict[str, str] = decoded.get("binaryData") or {}
        return {name: text.encode() for name, text in texts.items()} | {
            name: base64.b64decode(text) for name, text in binary.items()
        }
    except (binascii.Error, ValueError) as error:
        raise ConfigProblem(f"{key}: {error}") from error
