"""Service accounts of Pods: injected tokens, and Pods that are refused."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from onejob.api.admission.pod_accounts import PodAccounts
from onejob.api.service import Service
from onejob.client.base import Create
from onejob.client.local import LocalClient
from onejob.planning.pod.account_volume import VOLUME_PREFIX
from onejob.wire.errors import Forbidden
from onejob.wire.kinds import BY_RESOURCE
from tests.api.service_support import a_pod, create, read, served

ACCOUNT = BY_RESOURCE["serviceaccounts"]
POD = BY_RESOURCE["pods"]


def with_admission(folder: Path, test: Any) -> None:
    async def main(service: Service) -> None:
        service.admission.accounts = PodAccounts(service.store)
        for name in ("default", "worker"):
            await create(service, {"metadata": {"name": name}}, ACCOUNT)
        await test(service)

    served(folder, main)


def pod_with(name: str = "p", **spec: Any) -> dict[str, Any]:
    pod = a_pod(name)
    pod["spec"].update(spec)
    return pod


def has_token(pod: dict[str, Any]) -> bool:
    return any(
        volume["name"].startswith(VOLUME_PREFIX) for volume in pod["spec"].get("volumes", ())
    )


@pytest.mark.parametrize(
    ("spec", "mounts"),
    [
        ({}, False),
        ({"serviceAccountName": "default"}, False),
        ({"serviceAccountName": "worker"}, True),
        ({"serviceAccount": "worker"}, True),
        ({"automountServiceAccountToken": True}, True),
        ({"serviceAccountName": "worker", "automountServiceAccountToken": False}, False),
    ],
)
def test_pods_get_a_token_if_they_can_use_it(
    tmp_path: Path, spec: dict[str, Any], mounts: bool
) -> None:
    async def test(service: Service) -> None:
        assert has_token(await create(service, pod_with(**spec), POD)) is mounts
        # Again by a controller, whose Pods take the fast path.
        client = LocalClient(service)
        for _ in range(3):
            document = pod_with("", **spec)
            document["metadata"] = {"generateName": "j-"}
            body = msgspec.json.encode(document)
            made = read((await client.write(Create("pods", "default", body))).document)
            assert has_token(made) is mounts

    with_admission(tmp_path, test)


def test_automount_follows_default_account_if_pod_does_not_set_it(
    tmp_path: Path,
) -> None:
    async def test(service: Service) -> None:
        client = LocalClient(service)
        body = msgspec.json.encode(a_pod("")).replace(b'"name":"",', b'"generateName":"j-",')
        body = body.replace(b'{"name":""}', b'{"generateName":"j-"}')

        async def made() -> dict[str, Any]:
            return read((await client.write(Create("pods", "default", body))).document)

        assert not has_token(await made())
        assert not has_token(await made())
        account = read(await service.get(ACCOUNT, "default", "default"))
        account["automountServiceAccountToken"] = True
        from tests.api.service_support import PERSON

        await service.update(ACCOUNT, "default", "default", account, PERSON)
        assert has_token(await made())

    with_admission(tmp_path, test)


def test_a_pod_of_an_account_that_is_not_there_is_refused(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        with pytest.raises(Forbidden) as refused:
            await create(service, pod_with(serviceAccountName="nope"), POD)
        assert refused.value.message == (
            'pods "p" is forbidden: error looking up service account default/nope: '
            'serviceaccount "nope" not found'
        )

    with_admission(tmp_path, test)


def test_pods_of_one_template_share_their_spec(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        specs = []
        for name in ("a", "b"):
            made = await create(service, pod_with(name, serviceAccountName="worker"), POD)
            specs.append(made["spec"])
        assert specs[0] == specs[1]

    with_admission(tmp_path, test)


def test_service_account_admission_is_off_without_tokens(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        made = await create(service, pod_with(serviceAccountName="nope"), POD)
        assert not has_token(made)

    served(tmp_path, test)
