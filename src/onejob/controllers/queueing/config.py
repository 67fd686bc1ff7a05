"""ConfigMap with the concurrency limits of a server."""

import msgspec

from onejob.client.base import Client, Create, Patch
from onejob.objects.meta import Key, View
from onejob.planning.queue.limits import (
    LIMITS_KEY,
    LIMITS_NAME,
    LIMITS_NAMESPACE,
    Limits,
    read_limits,
)
from onejob.wire.errors import AlreadyExists, NotFound

CONFIG_MAPS = "configmaps"
LIMITS = Key(CONFIG_MAPS, LIMITS_NAMESPACE, LIMITS_NAME)


class _ConfigMap(View, frozen=True):
    data: dict[str, str] = msgspec.field(default_factory=dict)


_read = msgspec.json.Decoder(_ConfigMap).decode


async def write_limits(client: Client, limits: Limits) -> None:
    """Replace the limits of a server."""
    data = {LIMITS_KEY: str(limits)}
    document = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": LIMITS.name, "namespace": LIMITS.namespace},
        "data": data,
    }
    try:
        encoded = msgspec.json.encode(document)
        await client.write(Create(CONFIG_MAPS, LIMITS.namespace, encoded, replaces_damaged=True))
    except AlreadyExists:
        await client.write(Patch(LIMITS, msgspec.json.encode({"data": data}), "merge"))


async def fetch_limits(client: Client) -> Limits:
    """Return the limits of a server, unlimited if there is no ConfigMap. Raises BadLimits."""
    try:
        config_map = _read(await client.get(LIMITS))
    except NotFound:
        return Limits()
    return read_limits(config_map.data.get(LIMITS_KEY, ""))
