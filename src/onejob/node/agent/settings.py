"""ConfigMaps and Secrets, fetched for one container and read by name."""

import base64
import binascii
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from onejob.node.runtime import Fetch
from onejob.node.setup.environment import SECRETS, ConfigProblem
from onejob.objects.meta import Key
from onejob.wire.errors import ApiError, NotFound


class FetchedSettings:
    def __init__(self, found: Mapping[Key, Mapping[str, bytes] | None]) -> None:
        self._found = found

    def values(self, key: Key) -> Mapping[str, bytes] | None:
        return self._found[key]


NO_SETTINGS = FetchedSettings({})


async def fetch_settings(fetch: Fetch, keys: Iterable[Key]) -> FetchedSettings:
    """Raises ConfigProblem if the API does not answer or answers nonsense."""
    found: dict[Key, Mapping[str, bytes] | None] = {}
    for key in keys:
        if key in found:
            continue
        try:
            found[key] = _read(key, await fetch(key))
        except NotFound:
            found[key] = None
        except ApiError as error:
            raise ConfigProblem(error.message) from error
    return FetchedSettings(found)


def _read(key: Key, document: bytes) -> Mapping[str, bytes]:
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
