"""Decisions about claims and volumes."""

from typing import Any

import msgspec
import pytest

from onejob.objects.claims import CLAIMS, Claim, PersistentVolume, StorageClass
from onejob.objects.meta import Key, Meta
from onejob.objects.pod_spec import ClaimSource, Volume
from onejob.planning.claims.capacity import Disk, refusal
from onejob.planning.claims.claim import BindTo, Lose, Wait, decide_claim, default_class
from onejob.planning.claims.names import BIND_COMPLETED, IS_DEFAULT
from onejob.planning.claims.scheduling import hold
from onejob.planning.claims.volume import VolumeStep, decide_volume

MODES = ["ReadWriteOnce"]


def a_claim(uid: str = "u", annotations: Any = None, **spec: Any) -> Claim:
    document = {
        "metadata": {
            "name": "data",
            "namespace": "default",
            "uid": uid,
            "annotations": annotations or {},
        },
        "spec": {
            "accessModes": MODES,
            "storageClassName": "",
            "resources": {"requests": {"storage": "1Gi"}},
            **spec,
        },
    }
    return msgspec.convert(document, Claim)


def a_volume(name: str = "v", phase: str = "Available", **spec: Any) -> PersistentVolume:
    labels = spec.pop("labels", {})
    document = {
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": spec.pop("annotations", {}),
        },
        "spec": {"accessModes": MODES, "capacity": {"storage": "1Gi"}, **spec},
        "status": {"phase": phase},
    }
    return msgspec.convert(document, PersistentVolume)


def reserved(uid: str = "", name: str = "data") -> dict[str, str]:
    return {"namespace": "default", "name": name, "uid": uid}


@pytest.mark.parametrize(
    ("claim", "volume"),
    [
        ({}, {"capacity": {"storage": "1023Mi"}}),
        ({}, {"storageClassName": "a"}),
        ({}, {"volumeMode": "Block"}),
        ({}, {"accessModes": ["ReadOnlyMany"]}),
        ({}, {"phase": "Released"}),
        ({}, {"claimRef": {"namespace": "default", "name": "other"}}),
        ({}, {"claimRef": {"namespace": "default", "name": "data", "uid": "earlier"}}),
        ({"selector": {"matchLabels": {"a": "b"}}}, {}),
        ({"accessModes": ["ReadWriteOnce", "ReadWriteMany"]}, {}),
        ({"resources": {"requests": {"storage": "2Gi"}}}, {}),
        ({"storageClassName": "a"}, {}),
        ({"volumeMode": "Block"}, {}),
    ],
)
def test_static_volume_is_chosen_by_what_the_claim_requests(
    claim: dict[str, Any], volume: dict[str, Any]
) -> None:
    assert decide_claim(a_claim(), {"v": a_volume()}, {}) == BindTo(a_volume())
    assert isinstance(decide_claim(a_claim(**claim), {"v": a_volume(**volume)}, {}), Wait)


def test_a_volume_that_is_reserved_for_the_claim_comes_before_smaller_ones() -> None:
    large = a_volume("large", capacity={"storage": "9Gi"}, claimRef=reserved())
    assert decide_claim(a_claim(), {"v": a_volume(), "large": large}, {}) == BindTo(large)


def test_a_requested_volume_must_suit_the_claim_and_be_free() -> None:
    claim = a_claim(volumeName="v")
    assert decide_claim(claim, {"v": a_volume()}, {}) == BindTo(a_volume())
    small = decide_claim(claim, {"v": a_volume(capacity={"storage": "1Mi"})}, {})
    assert small == Wait(
        "VolumeMismatch", 'Cannot bind to requested volume "v": requested PV is too small'
    )
    taken = decide_claim(claim, {"v": a_volume(claimRef=reserved("w", "other"))}, {})
    assert taken == Wait("FailedBinding", 'volume "v" already bound to a different claim.')


def test_a_bound_claim_without_its_volume_is_lost() -> None:
    bound = {BIND_COMPLETED: "yes"}
    claim = a_claim(annotations=bound, volumeName="v")
    volume = a_volume(claimRef=reserved("u"))
    assert decide_claim(claim, {"v": volume}, {}) == BindTo(volume)
    assert isinstance(decide_claim(claim, {}, {}), Lose)
    assert isinstance(decide_claim(a_claim(annotations=bound), {}, {}), Lose)
    other = decide_claim(claim, {"v": a_volume(claimRef=reserved("w", "other"))}, {})
    assert isinstance(other, Lose)
    assert other.reason == "ClaimMisbound"


def test_the_newest_of_several_default_classes_applies() -> None:
    def a_class(name: str, time: str) -> StorageClass:
        metadata = {"name": name, "annotations": {IS_DEFAULT: "true"}, "creationTimestamp": time}
        return msgspec.convert({"metadata": metadata}, StorageClass)

    old = a_class("a", "2026-01-01T00:00:00Z")
    new = a_class("b", "2026-01-02T00:00:00Z")
    assert default_class([new, old]) == new
    assert default_class([StorageClass()]) is None


PROVISIONED = {"pv.kubernetes.io/provisioned-by": "onejob.dev/local"}


@pytest.mark.parametrize(
    ("volume", "claim", "step"),
    [
        (a_volume(), None, VolumeStep("Available")),
        (a_volume(claimRef=reserved()), None, VolumeStep("Available")),
        (a_volume(claimRef=reserved("u")), a_claim(volumeName="v"), VolumeStep("Bound")),
        (a_volume(claimRef=reserved("u")), None, VolumeStep("Released")),
        # A new claim of the same name is another claim.
        (
            a_volume(claimRef=reserved("earlier")),
            a_claim(volumeName="v"),
            VolumeStep("Released"),
        ),
        (
            a_volume(
                "pvc-u",
                claimRef=reserved("u"),
                persistentVolumeReclaimPolicy="Delete",
                annotations=PROVISIONED,
            ),
            None,
            VolumeStep("Released", deletes=True),
        ),
        # The annotation alone does not make it ours.
        (
            a_volume(
                claimRef=reserved("u"),
                persistentVolumeReclaimPolicy="Delete",
                annotations=PROVISIONED,
            ),
            None,
            VolumeStep("Released"),
        ),
        (
            a_volume(claimRef=reserved("u"), persistentVolumeReclaimPolicy="Delete"),
            None,
            VolumeStep("Failed", "onejob deletes only volumes that it has provisioned"),
        ),
    ],
)
def test_a_volume_has_the_phase_that_its_claim_gives_it(
    volume: PersistentVolume, claim: Claim | None, step: VolumeStep
) -> None:
    assert decide_volume(volume, claim) == step


def test_what_volumes_already_store_counts_once_against_the_disk() -> None:
    disk = Disk("/volumes", free=100 << 30, used_by_volumes=40 << 30)
    assert refusal(100 << 30, 40 << 30, disk) == ""
    assert refusal(50 << 30, 90 << 30, disk) == ""
    text = refusal(51 << 30, 90 << 30, disk)
    assert text == (
        "the claim requests 51Gi, but the file system of /volumes has room for 50Gi: 100Gi are "
        "free, and existing volumes may still use 50Gi of them"
    )


def test_a_pod_is_told_why_its_claim_is_pending() -> None:
    claim = a_claim(storageClassName="standard")
    volumes = [Volume("d", persistent_volume_claim=ClaimSource("data"))]
    key = Key(CLAIMS, "default", "data")
    pod = Meta(name="p", namespace="default", uid="p")
    found = hold(pod, volumes, {key: claim}.get, {}, frozenset(), lambda key: "the disk is full")
    assert found.reason == (
        "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims. "
        'persistentvolumeclaim "data": the disk is full'
    )
