"""Polling for a condition of the node."""

import asyncio
import json

from onejob.client.local import LocalClient
from onejob.objects.meta import NODES, Key
from onejob.wire.errors import NotFound
from tests.node.support import NODE, Document


async def the_condition(client: LocalClient, kind: str, status: str) -> Document:
    async with asyncio.timeout(60):
        while True:
            try:
                node = json.loads(await client.get(Key(NODES, "", NODE)))
            except NotFound:
                node = {"status": {}}
            for condition in node["status"].get("conditions", ()):
                if condition["type"] == kind and condition["status"] == status:
                    found: Document = condition
                    return found
            await asyncio.sleep(0.01)
