"""Locations of the volumes that PersistentVolumeClaims are bound to."""

from onejob.node.runtime import Fetch
from onejob.node.setup.claims import ClaimPath, ClaimWanted
from onejob.objects.claims import CLAIMS, VOLUMES, read_claim, read_volume
from onejob.objects.meta import Key, Meta
from onejob.planning.claims.names import READ_ONLY_MANY
from onejob.planning.claims.scheduling import is_made_for, not_made_for
from onejob.planning.claims.volume import is_provisioned_here
from onejob.wire.errors import NotFound


async def resolve(namespace: str, wanted: ClaimWanted, fetch: Fetch) -> ClaimPath:
    """Return the location of the volume that a claim is bound to."""
    key = Key(CLAIMS, namespace, wanted.claim)
    try:
        claim = read_claim(await fetch(key))
    except NotFound:
        return ClaimPath(problem=f'persistentvolumeclaim "{key.name}" not found')
    if wanted.uid:
        pod = Meta(name=wanted.pod, namespace=key.namespace, uid=wanted.uid)
        if not is_made_for(claim, pod):
            return ClaimPath(problem=not_made_for(claim, pod))
    if claim.metadata.deleting:
        return ClaimPath(problem=f'persistentvolumeclaim "{key.name}" is being deleted')
    if claim.status.phase != "Bound":
        return ClaimPath(problem=f'persistentvolumeclaim "{key.name}" is not bound')
    try:
        volume = read_volume(await fetch(Key(VOLUMES, "", claim.spec.volume_name)))
    except NotFound:
        name = claim.spec.volume_name
        return ClaimPath(problem=f'persistentvolume "{name}" of its claim not found')
    reference = volume.spec.claim_ref
    if reference is None or reference.uid != claim.metadata.uid:
        return ClaimPath(problem=f'persistentvolume "{volume.metadata.name}" has another claim')
    # A volume that may only be read by several nodes is not written by any.
    read_only = claim.spec.access_modes == (READ_ONLY_MANY,)
    if volume.spec.host_path is not None:
        source = volume.spec.host_path
        # The path of such a volume is not read: whoever may write it could name any other.
        folder = volume.metadata.name if is_provisioned_here(volume) else ""
        return ClaimPath(source.path, source.type, folder, read_only)
    if volume.spec.local is not None:
        return ClaimPath(volume.spec.local.path, "Directory", read_only=read_only)
    return ClaimPath(
        problem=f'this node does not provide the kind of persistentvolume "{volume.metadata.name}"'
    )
