"""Whether a Pod's claims let it start, in the words of Kubernetes' scheduler."""

from collections.abc import Callable, Mapping, Sequence, Set
from typing import TypeAlias

from msgspec import Struct

from onejob.objects.claims import CLAIMS, Claim, ClaimVolume, StorageClass
from onejob.objects.meta import Key, Meta
from onejob.objects.pod_spec import Volume as NodeVolume
from onejob.objects.pod_spec import claim_name
from onejob.planning.claims.names import (
    BIND_COMPLETED,
    READ_WRITE_ONCE_POD,
    SELECTED_NODE,
    WAIT_FOR_CONSUMER,
)

Volume: TypeAlias = ClaimVolume | NodeVolume


class Hold(Struct, frozen=True):
    """Why a Pod has to wait for its claims; `reason` is "" if it need not."""

    reason: str = ""
    #: Claims of classes that wait for a Pod: they are to be bound for this one.
    selects: tuple[Key, ...] = ()


def hold(
    pod: Meta,
    volumes: Sequence[Volume],
    claims: Callable[[Key], Claim | None],
    classes: Mapping[str, StorageClass],
    in_use: Set[Key],
    note: Callable[[Key], str] = lambda claim: "",
) -> Hold:
    """Return why a Pod waits.

    `in_use` are the claims that other Pods on the node use; `note` returns why a claim is pending.
    """
    unbound: list[str] = []
    selects: list[Key] = []
    for volume in volumes:
        name = claim_name(pod.name, volume)
        if not name:
            continue
        key = Key(CLAIMS, pod.namespace, name)
        claim = claims(key)
        if problem := _problem(pod, volume, name, claim, used=key in in_use):
            return Hold(_unschedulable(problem))
        assert claim is not None, "a missing claim is a problem"
        if BIND_COMPLETED in claim.metadata.annotations:
            continue
        storage_class = classes.get(claim.spec.storage_class_name or "")
        if storage_class is None or storage_class.volume_binding_mode != WAIT_FOR_CONSUMER:
            unbound.append(f' persistentvolumeclaim "{name}": {why}' if (why := note(key)) else "")
        elif SELECTED_NODE not in claim.metadata.annotations:
            selects.append(key)
        else:
            return Hold(_unschedulable(f'persistentvolumeclaim "{name}" is being bound'))
    if unbound:
        text = _unschedulable("pod has unbound immediate PersistentVolumeClaims")
        return Hold(text + "".join(unbound))
    if selects:
        names = ", ".join(f'"{key.name}"' for key in selects)
        return Hold(_unschedulable(f"persistentvolumeclaim {names} is being bound"), tuple(selects))
    return Hold()


def claims_of(pod: Meta, volumes: Sequence[Volume]) -> tuple[Key, ...]:
    """Return the claims that a Pod's volumes refer to."""
    names = [claim_name(pod.name, volume) for volume in volumes]
    return tuple(Key(CLAIMS, pod.namespace, name) for name in names if name)


def _problem(pod: Meta, volume: Volume, name: str, claim: Claim | None, *, used: bool) -> str:
    if claim is None:
        if volume.ephemeral is not None:
            return (
                "waiting for ephemeral volume controller to create the persistentvolumeclaim "
                f'"{name}"'
            )
        return f'persistentvolumeclaim "{name}" not found'
    if claim.metadata.deleting:
        return f'persistentvolumeclaim "{name}" is being deleted'
    if volume.ephemeral is not None and not is_made_for(claim, pod):
        return not_made_for(claim, pod)
    if claim.status.phase == "Lost":
        bound = claim.spec.volume_name
        return f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{bound}"'
    if used and READ_WRITE_ONCE_POD in claim.spec.access_modes:
        return (
            "1 node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod "
            "access mode"
        )
    return ""


def is_made_for(claim: Claim, pod: Meta) -> bool:
    """Return whether an ephemeral volume's claim belongs to the Pod, not just to its name."""
    owner = claim.metadata.controller_ref
    return owner is not None and owner.uid == pod.uid


def not_made_for(claim: Claim, pod: Meta) -> str:
    own, other = claim.metadata, f"{pod.namespace}/{pod.name}"
    return f"PVC {own.namespace}/{own.name} was not created for pod {other} (pod is not owner)"


def _unschedulable(problem: str) -> str:
    return f"0/1 nodes are available: {problem}."
