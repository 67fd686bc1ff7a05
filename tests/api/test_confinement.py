"""Confinement of a namespace's Pods to users, groups and host paths."""

from pathlib import Path
from random import Random
from typing import Any

import pytest

from onejob.api.service import Service
from onejob.client.base import Create
from onejob.client.local import LocalClient
from onejob.gates import FeatureGates
from onejob.objects.meta import PODS
from onejob.planning.pod.security import Means
from onejob.store.log import LogStore
from onejob.store.writer import LoopCommitter
from onejob.virtual_time import virtual_clock
from onejob.wire.errors import Forbidden, Invalid
from tests.api.service_support import (
    JOB,
    NAMESPACE,
    PERSON,
    POD,
    a_pod,
    create,
    failure,
    read,
    served,
)

pytestmark = pytest.mark.virtual_time


async def _annotate(service: Service, **annotations: str | None) -> None:
    named = {f"onejob.dev/{name.replace('_', '-')}": text for name, text in annotations.items()}
    patch = {"metadata": {"annotations": named}}
    await service.patch(NAMESPACE, "", "default", "merge", patch, PERSON)


def test_pods_run_as_the_user_of_their_namespace(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        await create(service, {"metadata": {"name": "other"}}, NAMESPACE, "")
        await _annotate(service, run_as_user="1001")
        made = await create(service, a_pod(), POD)
        assert made["spec"]["securityContext"] == {"runAsUser": 1001, "runAsGroup": 1001}
        client = LocalClient(service)
        pod = b'{"metadata":{"generateName":"p-"},"spec":{"containers":[{"name":"c","image":"i"}]}}'
        users = []
        for namespace in ("other", "default", "other", "default"):
            document = read((await client.write(Create(PODS, namespace, pod))).document)
            users.append(document["spec"]["securityContext"].get("runAsUser"))
        assert users == [None, 1001, None, 1001]
        bad = a_pod("bad")
        bad["spec"]["securityContext"] = {"runAsUser": 0}
        error = await failure(create(service, bad, POD))
        assert isinstance(error, Forbidden)
        assert error.message == (
            'pods "bad" is forbidden: pod may not set runAsUser=0: the namespace allows 1001 '
            "(onejob.dev/allowed-users)"
        )

    served(tmp_path, test)


def test_a_job_whose_pods_would_be_refused_gets_a_warning(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        await _annotate(service, allowed_host_paths="")
        volume = {"name": "v", "hostPath": {"path": "/etc"}}
        spec = {**a_pod()["spec"], "restartPolicy": "Never", "volumes": [volume]}
        made = {"metadata": {"name": "j"}, "spec": {"template": {"spec": spec}}}
        outcome = await service.create(JOB, "default", made, PERSON)
        assert outcome.warnings == (
            "its Pods will be refused: volume v may not use hostPath /etc: allowed are none",
        )

    served(tmp_path, test)


def test_non_root_pods_get_no_host_path_without_allow_list(tmp_path: Path) -> None:
    """Root would mount and create them where their user may not go."""

    async def attempt(service: Service, path: str) -> str:
        volume = {"name": "v", "hostPath": {"path": path, "type": "FileOrCreate"}}
        pod = a_pod(path.strip("/").replace("/", "-"))
        pod["spec"]["volumes"] = [volume]
        try:
            await create(service, pod, POD)
        except Forbidden as refusal:
            return refusal.message.partition("forbidden: ")[2]
        return ""

    async def test(service: Service) -> None:
        assert await attempt(service, "/etc/one") == ""
        await _annotate(service, run_as_user="1001")
        refused = "volume v may not use hostPath /etc/nologin: allowed are none"
        assert await attempt(service, "/etc/nologin") == refused
        assert service.admission.host_paths_of("default") == ()
        await _annotate(service, run_as_user="1001", allowed_host_paths="/home/alice")
        assert await attempt(service, "/home/alice/x") == ""
        assert service.admission.host_paths_of("default") == ("/home/alice",)

    served(tmp_path, test)


def test_annotations_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        error = await failure(_annotate(service, run_as_user="alice"))
        assert isinstance(error, Invalid)
        assert error.details["causes"][0]["field"] == (
            "metadata.annotations[onejob.dev/run-as-user]"
        )

    served(tmp_path, test)


def test_the_folders_of_the_server_bind_every_namespace(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        service.admission.host_paths = ("/srv",)
        client = LocalClient(service)

        async def attempt(path: str) -> bool:
            volume = {"name": "v", "hostPath": {"path": path}}
            pod: dict[str, Any] = {**a_pod(path.strip("/").replace("/", "-"))}
            pod["spec"] = {**pod["spec"], "volumes": [volume]}
            try:
                await create(service, pod, POD)
            except Forbidden:
                return False
            return True

        assert [await attempt(path) for path in ("/srv/a", "/etc", "/srvs")] == [True, False, False]
        await _annotate(service, allowed_host_paths="/,/srv/b")
        assert [await attempt(path) for path in ("/srv/b", "/home")] == [True, False]
        pod = b'{"metadata":{"generateName":"p-"},"spec":{"containers":[{"name":"c","image":"i"}],'
        pod += b'"volumes":[{"name":"v","hostPath":{"path":"/etc"}}]}}'
        results = await client.write_many([Create(PODS, "default", pod)] * 2)
        assert all(isinstance(result, Forbidden) for result in results)

    served(tmp_path, test)


async def test_a_server_without_root_refuses_pods_that_it_would_run_as_itself(
    tmp_path: Path,
) -> None:
    clock = virtual_clock()
    store = await LogStore.open(tmp_path / "db", clock=clock, committer=LoopCommitter())
    service = Service(
        store, clock=clock, rng=Random(7), gates=FeatureGates(), means=Means(root=False)
    )
    await create(service, {"metadata": {"name": "default"}}, NAMESPACE, "")
    await _annotate(service, run_as_user="1001")
    error = await failure(create(service, a_pod(), POD))
    assert isinstance(error, Forbidden)
    assert "does not run as root" in error.message
    await store.close()


@pytest.mark.parametrize(
    ("container", "message"),
    [
        ({"securityContext": {"runAsUser": 0}}, "container e may not set runAsUser=0"),
        ({"securityContext": {"privileged": True}}, "privileged"),
    ],
)
def test_ephemeral_containers_obey_the_rules_of_their_namespace(
    tmp_path: Path, container: dict[str, Any], message: str
) -> None:
    async def test(service: Service) -> None:
        labels = {"pod-security.kubernetes.io/enforce": "baseline"}
        patch = {"metadata": {"labels": labels}}
        await service.patch(NAMESPACE, "", "default", "merge", patch, PERSON)
        await _annotate(service, run_as_user="1001")
        await create(service, a_pod("p"), POD)

        async def add(fields: dict[str, Any]) -> None:
            added = {"spec": {"ephemeralContainers": [{"name": "e", "image": "i", **fields}]}}
            await service.patch(
                POD, "default", "p", "strategic", added, PERSON, subresource="ephemeralcontainers"
            )

        error = await failure(add(container))
        assert isinstance(error, Forbidden)
        assert message in error.message
        await add({})

    served(tmp_path, test)
