"""Parts of the server act under their own names: within their roles, and counted."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from onejob.client.acting import ActingClient
from onejob.client.base import Bind, Create, Delete, Patch, Replace, Selection, Written
from onejob.client.local import LocalClient
from onejob.client.write_series import StagedWrites
from onejob.controllers.access import ControllerRights, NodeRights, default_policy
from onejob.metrics import Metrics
from onejob.objects.meta import JOBS, PODS, Key
from onejob.planning.rbac.inside import CONTROLLERS, controller_user, node_user
from onejob.planning.rbac.policy import Role
from onejob.planning.rbac.rules import Question
from onejob.wire.errors import Forbidden, NotFound
from onejob.wire.requests import User
from tests.harness import running

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p"},
    "spec": {"containers": [{"name": "c", "image": "i"}]},
}
KEY = Key(PODS, "default", "p")
CREATE = Create(PODS, "default", msgspec.json.encode(POD))


class CountedRights(ControllerRights):
    """The default rights, and how often they were asked."""

    def __init__(self) -> None:
        super().__init__(default_policy())
        self.asked = 0

    def allows(self, user: User, question: Question) -> bool:
        self.asked += 1
        return super().allows(user, question)


def acting(
    path: Path,
    test: Callable[[ActingClient, LocalClient, CountedRights, Metrics], Awaitable[None]],
    account: str = "job-controller",
) -> None:
    async def main() -> None:
        async with running(path) as plane:
            rights, metrics = CountedRights(), Metrics()
            user = controller_user(account)
            client = ActingClient(plane.client, user, rights, plane.service.kinds, metrics)
            await test(client, plane.client, rights, metrics)

    asyncio.run(main())


def requests(metrics: Metrics, *labels: str) -> float:
    return metrics.value("apiserver_request_total", *labels)


def test_what_a_role_allows_is_done_and_counted(tmp_path: Path) -> None:
    async def test(
        client: ActingClient, _: LocalClient, rights: CountedRights, metrics: Metrics
    ) -> None:
        await client.write(CREATE)
        assert requests(metrics, "CREATE", "", "v1", "pods", "", "201") == 1
        with pytest.raises(NotFound):
            await client.get(Key(JOBS, "default", "none"))
        assert requests(metrics, "GET", "batch", "v1", "jobs", "", "404") == 1
        assert len((await client.list(Selection(PODS))).documents) == 1
        assert requests(metrics, "LIST", "", "v1", "pods", "", "200") == 1

    acting(tmp_path, test)


def test_what_a_role_does_not_allow_is_refused_and_not_done(tmp_path: Path) -> None:
    async def test(
        client: ActingClient, base: LocalClient, rights: CountedRights, metrics: Metrics
    ) -> None:
        await base.write(CREATE)
        with pytest.raises(Forbidden, match="cannot update resource"):
            await client.write(Replace(KEY, msgspec.json.encode(POD)))
        with pytest.raises(Forbidden, match=r'"pods/binding"'):
            client.stage(Bind(KEY, "node"))
        with pytest.raises(Forbidden, match=r'"pods/status"'):
            await StagedWrites(client).write(Patch(KEY, b"{}", subresource="status"))
        with pytest.raises(Forbidden):
            await client.get(Key("secrets", "default", "s"))
        with pytest.raises(Forbidden):
            client.watch(Selection("secrets"), after=0)

    acting(tmp_path, test)


def test_of_many_writes_only_those_that_are_allowed_are_done(tmp_path: Path) -> None:
    async def test(
        client: ActingClient, base: LocalClient, rights: CountedRights, metrics: Metrics
    ) -> None:
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}
        refused = Create("secrets", "default", msgspec.json.encode(secret))
        results = await client.write_many([refused, CREATE, refused, Delete(KEY)])
        kinds = [type(result) for result in results]
        assert kinds == [Forbidden, Written, Forbidden, Written]
        assert requests(metrics, "DELETE", "", "v1", "pods", "", "200") == 1

    acting(tmp_path, test)


def test_a_decision_is_made_once_until_the_roles_change(tmp_path: Path) -> None:
    async def test(
        client: ActingClient, base: LocalClient, rights: CountedRights, metrics: Metrics
    ) -> None:
        for _ in range(5):
            await client.list(Selection(PODS))
        assert rights.asked == 1
        rights.policy.put_role(
            Role(metadata=rights.policy.roles["", "system:controller:job-controller"].metadata)
        )
        with pytest.raises(Forbidden):
            await client.list(Selection(PODS))

    acting(tmp_path, test)


def test_the_node_has_its_role_by_what_it_is() -> None:
    policy, node = default_policy(), node_user("here")
    wanted = Question("patch", "", "pods", "status")
    rights = NodeRights(policy)
    assert rights.allows(node, wanted)
    assert rights.allows(node, Question("create", "", "pods"))
    assert not rights.allows(node, Question("update", "", "secrets"))
    # Somebody with a certificate that says so has not.
    assert not ControllerRights(policy).allows(node, wanted)


@pytest.mark.parametrize("account", CONTROLLERS)
def test_no_controller_may_read_secrets_but_those_that_delete_all(account: str) -> None:
    rights = ControllerRights(default_policy())
    reads = rights.allows(controller_user(account), Question("get", "", "secrets"))
    deletes_all = {
        "generic-garbage-collector",
        "namespace-controller",
        "ttl-after-finished-controller",
    }
    assert reads is (account in deletes_all)
