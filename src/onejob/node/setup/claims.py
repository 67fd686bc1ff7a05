"""Volumes of a Pod that are provided by PersistentVolumeClaims.

The location of a claim's volume is fetched like the contents of a Secret.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import msgspec

from onejob.node.runtime import Fetch
from onejob.node.setup.environment import ConfigProblem
from onejob.objects.meta import Key
from onejob.objects.pod_spec import NodePod, Volume, claim_name

#: Not a stored resource: the location of a claim's volume, resolved when it is fetched.
CLAIM_PATHS: Final = "persistentvolumeclaims/path"


class ClaimPath(msgspec.Struct, frozen=True):
    """Location of the volume of a claim."""

    path: str = ""
    #: Type of a hostPath; "Directory" for other volumes.
    type: str = ""
    #: Name of the folder that the local provisioner made for it, which needs no permission by the
    #: rules of hostPath; "" for any other volume.
    folder: str = ""
    read_only: bool = False
    #: Reason why the volume cannot be mounted; "" if it can.
    problem: str = ""


class ClaimWanted(msgspec.Struct, frozen=True, array_like=True):
    """A Pod's use of a claim, encoded as the name in its key."""

    claim: str
    #: UID and name of the Pod if the claim must have been created for it.
    uid: str = ""
    pod: str = ""


def claim_path_key(pod: NodePod, volume: Volume) -> Key | None:
    """Return the key under which a volume's location is fetched; None if it uses no claim."""
    name = claim_name(pod.metadata.name, volume)
    if not name:
        return None
    wanted = ClaimWanted(name)
    if volume.ephemeral is not None:
        wanted = ClaimWanted(name, pod.uid, pod.metadata.name)
    return Key(CLAIM_PATHS, pod.metadata.namespace, msgspec.json.encode(wanted).decode())


def read_claim_path(values: Mapping[str, bytes] | None) -> ClaimPath:
    """Return a fetched location. Raises ConfigProblem if the volume cannot be mounted."""
    assert values is not None, "resolving a claim always has a result"
    found = msgspec.json.decode(values["location"], type=ClaimPath)
    if found.problem:
        raise ConfigProblem(found.problem)
    return found


#: Returns the location of the volume of a claim in a namespace. Raises ApiError.
ResolveClaim = Callable[[str, ClaimWanted, Fetch], Awaitable[ClaimPath]]


def fetch_with_claims(fetch: Fetch, resolve: ResolveClaim) -> Fetch:
    """Return a `Fetch` that also resolves claims to the locations of their volumes."""

    def fetch_any(key: Key) -> Awaitable[bytes]:
        return _resolve_encoded(key, fetch, resolve) if key.resource == CLAIM_PATHS else fetch(key)

    return fetch_any


async def _resolve_encoded(key: Key, fetch: Fetch, resolve: ResolveClaim) -> bytes:
    wanted = msgspec.json.decode(key.name, type=ClaimWanted)
    found = await resolve(key.namespace, wanted, fetch)
    return msgspec.json.encode({"data": {"location": msgspec.json.encode(found).decode()}})
