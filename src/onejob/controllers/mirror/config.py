"""Copying of referenced ConfigMaps and Secrets to a target, before Pods that need them start."""

from typing import Any

import msgspec

from onejob.client.base import Client, Create, Replace
from onejob.controllers.mirror.remote import Remote
from onejob.objects.meta import Key
from onejob.planning.mirror import names
from onejob.planning.mirror.copying import ConfigRef, config_copy, named_config, owner_reference
from onejob.wire.errors import AlreadyExists, NotFound

Document = dict[str, Any]


class CannotCopy(Exception):
    """A copy is impossible; the message names the conflicting object and the remedy."""


async def copy_config(
    client: Client, remote: Remote, job: Document, copy: Document, resources: frozenset[str]
) -> None:
    """Copy the ConfigMaps and Secrets that the Job's template refers to.

    Raises CannotCopy, or ApiError if the remote server refuses.
    """
    for ref in named_config(job["spec"]["template"]):
        if ref.resource in resources:
            await _copy_one(client, remote, job, copy, ref)


async def _copy_one(
    client: Client, remote: Remote, job: Document, copy: Document, ref: ConfigRef
) -> None:
    """Copy a ConfigMap or Secret to the target. Raises CannotCopy, ApiError; an optional one may be
    absent."""
    try:
        document = await client.get(Key(ref.resource, job["metadata"]["namespace"], ref.name))
    except NotFound as missing:
        if ref.optional:
            return
        raise CannotCopy(
            f"{ref.resource[:-1]} {ref.name}, which the template uses, does not exist; create it"
        ) from missing
    wanted = config_copy(msgspec.json.decode(document), remote.namespace, copy)
    try:
        await remote.write(Create(ref.resource, remote.namespace, msgspec.json.encode(wanted)))
    except AlreadyExists:
        await _bring_up_to_date(remote, wanted, copy, ref)


async def _bring_up_to_date(
    remote: Remote, wanted: Document, copy: Document, ref: ConfigRef
) -> None:
    """Update an existing copy. Raises CannotCopy if the object is not our copy."""
    key = Key(ref.resource, remote.namespace, ref.name)
    there = await remote.get(key)
    origin = wanted["metadata"]["labels"][names.COPIED_FROM]
    if there["metadata"].get("labels", {}).get(names.COPIED_FROM) != origin:
        raise CannotCopy(
            f"{ref.resource[:-1]} {remote.namespace}/{ref.name} on {remote.target} is not a "
            f"copy of the local one; delete it there, or remove {names.COPY_CONFIG} to use it "
            "unchanged"
        )
    owners = there["metadata"].get("ownerReferences", [])
    owner = owner_reference(copy)
    if owner["uid"] not in [one["uid"] for one in owners]:
        owners = [*owners, owner]
    changed = {
        **wanted,
        "metadata": {**there["metadata"], "ownerReferences": owners},
    }
    if any(changed.get(field) != there.get(field) for field in ("data", "binaryData", "metadata")):
        await remote.write(Replace(key, msgspec.json.encode(changed)))
