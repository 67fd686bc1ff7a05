"""Jobs whose Pods use claims, as processes."""

import os
from pathlib import Path

import pytest

from onejob.objects.claims import CLAIMS, CLASSES, VOLUMES
from onejob.objects.meta import NAMESPACES, PODS
from onejob.planning.pod.confinement import RUN_AS_USER
from tests.claims.support import a_class, a_volume, a_world, phase, using

# The containers mount volumes at /data, which needs mount namespaces.
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")


async def test_jobs_share_the_folder_of_a_claim_and_it_is_deleted_with_the_claim(
    tmp_path: Path,
) -> None:
    async with a_world(tmp_path) as world:
        await world.claim()
        await world.job("echo one > /data/x")
        await world.finished()
        claim = await world.bound()
        name = claim["spec"]["volumeName"]
        assert claim["spec"]["storageClassName"] == "standard"
        assert claim["status"]["capacity"] == {"storage": "1Mi"}
        assert (world.volumes / name / "x").read_text() == "one\n"
        await world.job("cat /data/x > /data/y", name="k")
        await world.finished("k")
        assert (world.volumes / name / "y").read_text() == "one\n"
        volume = await world.get(VOLUMES, name)
        assert (phase(volume), volume["spec"]["claimRef"]["name"]) == ("Bound", "data")
        # Ended Pods protect the claim until they are deleted.
        await world.delete(CLAIMS, "data")
        assert "deletionTimestamp" in (await world.get(CLAIMS, "data"))["metadata"]
        for pod in await world.names(PODS):
            await world.delete(PODS, pod)
        await world.until_gone(CLAIMS, "data")
        await world.until_gone(VOLUMES, name)
        assert list(world.volumes.iterdir()) == []


async def test_a_retained_volume_keeps_its_files_when_its_claim_is_deleted(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        await world.create(CLASSES, a_class("keep", reclaimPolicy="Retain"))
        await world.claim(storageClassName="keep")
        name = (await world.bound())["spec"]["volumeName"]
        (world.volumes / name / "x").write_text("kept")
        await world.delete(CLAIMS, "data")
        await world.until(VOLUMES, name, lambda volume: phase(volume) == "Released")
        # Deleting the object does not touch the files either.
        await world.delete(VOLUMES, name)
        await world.until_gone(VOLUMES, name)
        assert (world.volumes / name / "x").read_text() == "kept"


async def test_an_ephemeral_volume_lives_as_long_as_its_pod(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        template = using("", "echo hi > /data/x; cat /data/x")
        template["spec"]["volumes"] = [
            {
                "name": "v",
                "ephemeral": {
                    "volumeClaimTemplate": {
                        "metadata": {"labels": {"a": "b"}},
                        "spec": {
                            "accessModes": ["ReadWriteOnce"],
                            "resources": {"requests": {"storage": "1Mi"}},
                        },
                    }
                },
            }
        ]
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, **template}
        await world.create(PODS, pod)
        await world.until(PODS, "p", lambda found: phase(found) == "Succeeded")
        claim = await world.bound("p-v")
        assert claim["metadata"]["labels"] == {"a": "b"}
        assert claim["metadata"]["ownerReferences"][0]["name"] == "p"
        await world.delete(PODS, "p")
        await world.until_gone(CLAIMS, "p-v")
        await world.until_gone(VOLUMES, claim["spec"]["volumeName"])


async def test_a_claim_of_another_pod_is_not_taken_for_an_ephemeral_volume(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        await world.claim("p-v")
        await world.bound("p-v")
        template = using("", "true")
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
        template["spec"]["volumes"] = [
            {"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": spec}}}
        ]
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, **template}
        await world.create(PODS, pod)
        await world.waiting_pod("PVC default/p-v was not created for pod default/p")


@pytest.mark.parametrize(
    ("modes", "source"), [(["ReadOnlyMany"], {}), (["ReadWriteOnce"], {"readOnly": True})]
)
async def test_a_volume_is_mounted_read_only(
    tmp_path: Path, modes: list[str], source: dict[str, bool]
) -> None:
    async with a_world(tmp_path) as world:
        await world.claim(accessModes=modes)
        await world.job("if touch /data/x; then exit 1; fi", source=source, restartPolicy="Never")
        await world.finished()


async def test_a_static_volume_obeys_the_rules_of_host_paths(tmp_path: Path) -> None:
    allowed, denied = tmp_path / "allowed", tmp_path / "denied"
    allowed.mkdir()
    denied.mkdir()
    async with a_world(tmp_path / "state", host_paths=(str(allowed),)) as world:
        for name, path in (("good", allowed), ("bad", denied)):
            source = {"path": str(path), "type": "Directory"}
            await world.create(VOLUMES, a_volume(name, hostPath=source))
            await world.claim(name, storageClassName="", volumeName=name)
            await world.bound(name)
            await world.job("echo > /data/x", name, name=name)
        await world.finished("good")
        assert os.listdir(allowed) == ["x"]
        message = await world.told("FailedMount")
        assert f"hostPath {denied} resolves to {denied}, which is not allowed" in message
        assert os.listdir(denied) == []


async def test_a_forged_provisioned_volume_leads_nowhere_but_to_the_folder_of_its_claim(
    tmp_path: Path,
) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    async with a_world(tmp_path / "state", host_paths=()) as world:
        await world.create(CLASSES, a_class("none", provisioner="example.com/none"))
        await world.claim(storageClassName="none")
        uid = (await world.get(CLAIMS, "data"))["metadata"]["uid"]
        forged = a_volume(
            f"pvc-{uid}",
            storageClassName="none",
            hostPath={"path": str(secret)},
            claimRef={"namespace": "default", "name": "data", "uid": uid},
        )
        forged["metadata"]["annotations"] = {"pv.kubernetes.io/provisioned-by": "onejob.dev/local"}
        await world.create(VOLUMES, forged)
        await world.bound()
        await world.job("echo > /data/x")
        await world.told("FailedMount")
        assert os.listdir(secret) == []


async def test_a_link_planted_in_a_volume_does_not_lead_out_of_it(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    async with a_world(tmp_path / "state") as world:
        await world.claim()
        await world.job(f"ln -s {outside} /data/link")
        await world.finished()
        name = (await world.bound())["spec"]["volumeName"]
        template = using("data", "echo > /part/x")
        mount = {"name": "v", "mountPath": "/part", "subPath": "link"}
        template["spec"]["containers"][0]["volumeMounts"] = [mount]
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, **template}
        await world.create(PODS, pod)
        await world.until(
            PODS,
            "p",
            lambda found: "leads out of the volume" in str(found["status"]),
        )
        await world.delete(PODS, "p")
        await world.delete(CLAIMS, "data")
        for job_pod in await world.names(PODS):
            if job_pod != "p":
                await world.delete(PODS, job_pod)
        await world.until_gone(VOLUMES, name)
        assert outside.exists(), "the volume was deleted, not the target of its link"


async def test_pods_of_a_confined_namespace_use_claims_as_their_user(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        confined = {"metadata": {"annotations": {RUN_AS_USER: "1234"}}}
        await world.patch(NAMESPACES, "default", confined)
        await world.claim()
        await world.job("id -u > /data/x")
        await world.finished()
        name = (await world.bound())["spec"]["volumeName"]
        assert (world.volumes / name / "x").read_text() == "1234\n"
