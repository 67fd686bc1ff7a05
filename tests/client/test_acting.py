"""Components of the server act under their own names: within their roles, and counted."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from onejob.api.audit.recorder import Auditor
from onejob.client.acting import AuthorizedClient
from onejob.client.audited import AuditedClient
from onejob.client.base import Bind, Create, Delete, Op, Patch, Replace, Selection, Written
from onejob.client.local import LocalClient
from onejob.client.write_series import StagedWrites
from onejob.controllers.access import ControllerRights, NodeRights, default_policy
from onejob.controllers.identities import ACCOUNTS
from onejob.controllers.selection import ALL
from onejob.metrics import Metrics
from onejob.objects.meta import JOBS, NAMESPACES, PODS, Key
from onejob.planning.audit import AuditPolicy, AuditRule
from onejob.planning.rbac.component_roles import CONTROLLERS, controller_user, node_user
from onejob.planning.rbac.policy import Role
from onejob.planning.rbac.rules import AccessAttributes
from onejob.wire.errors import AlreadyExists, ApiError, Forbidden, NotFound
from onejob.wire.requests import User
from tests.client.write_series_support import FailingCommitter
from tests.harness import running
from tests.scripted_cluster import a_cluster

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p"},
    "spec": {"containers": [{"name": "c", "image": "i"}]},
}
KEY = Key(PODS, "default", "p")
CREATE = Create(PODS, "default", msgspec.json.encode(POD))


def stage(client: AuthorizedClient, op: Op) -> Written:
    (outcome,) = client.stage_many((op,))
    if isinstance(outcome, ApiError):
        raise outcome
    return outcome


class CountedRights(ControllerRights):
    """The default rights, with a count of the checks."""

    def __init__(self) -> None:
        super().__init__(default_policy())
        self.asked = 0

    def allows(self, user: User, question: AccessAttributes) -> bool:
        self.asked += 1
        return super().allows(user, question)


async def acting(
    path: Path,
    test: Callable[[AuthorizedClient, LocalClient, CountedRights, Metrics], Awaitable[None]],
    account: str = "job-controller",
) -> None:
    async with running(path) as plane:
        rights, metrics = CountedRights(), Metrics()
        user = controller_user(account)
        client = AuthorizedClient(plane.client, user, rights, plane.service.kinds, metrics)
        await test(client, plane.client, rights, metrics)


def requests(metrics: Metrics, verb: str, group: str, resource: str, code: int) -> float:
    """Return the number of requests for a resource of version v1."""
    return metrics.requests.value(
        verb=verb, group=group, version="v1", resource=resource, subresource="", code=str(code)
    )


async def test_allowed_write_is_done_and_counted(tmp_path: Path) -> None:
    async def test(
        client: AuthorizedClient, _: LocalClient, rights: CountedRights, metrics: Metrics
    ) -> None:
        await client.write(CREATE)
        assert requests(metrics, "CREATE", "", "pods", 201) == 1
        with pytest.raises(NotFound):
            await client.get(Key(JOBS, "default", "none"))
        assert requests(metrics, "GET", "batch", "jobs", 404) == 1
        assert len((await client.list(Selection(PODS))).documents) == 1
        assert requests(metrics, "LIST", "", "pods", 200) == 1

    await acting(tmp_path, test)


async def test_acting_client_times_single_requests_and_only_counts_staged_ones(
    tmp_path: Path,
) -> None:
    def timed(metrics: Metrics, verb: str, group: str, resource: str) -> float:
        return metrics.request_duration.value(
            verb=verb, group=group, version="v1", resource=resource, subresource=""
        )

    async def test(
        client: AuthorizedClient, _: LocalClient, rights: CountedRights, metrics: Metrics
    ) -> None:
        await client.write(CREATE)
        with pytest.raises(AlreadyExists):
            await client.write(CREATE)
        assert timed(metrics, "CREATE", "", "pods") == 2
        with pytest.raises(NotFound):
            await client.get(Key(JOBS, "default", "none"))
        assert timed(metrics, "GET", "batch", "jobs") == 1
        await client.list(Selection(PODS))
        assert timed(metrics, "LIST", "", "pods") == 1
        stage(client, Delete(KEY, grace_seconds=0))
        await client.write_many([CREATE, CREATE])
        assert requests(metrics, "DELETE", "", "pods", 200) == 1
        assert requests(metrics, "CREATE", "", "pods", 201) == 2
        assert requests(metrics, "CREATE", "", "pods", 409) == 2
        assert timed(metrics, "DELETE", "", "pods") == 0
        assert timed(metrics, "CREATE", "", "pods") == 2

    await acting(tmp_path, test)


async def test_denied_write_is_refused_and_not_done(tmp_path: Path) -> None:
    async def test(
        client: AuthorizedClient, base: LocalClient, rights: CountedRights, metrics: Metrics
    ) -> None:
        await base.write(CREATE)
        with pytest.raises(Forbidden, match="cannot update resource"):
            await client.write(Replace(KEY, msgspec.json.encode(POD)))
        with pytest.raises(Forbidden, match=r'"pods/binding"'):
            stage(client, Bind(KEY, "node"))
        with pytest.raises(Forbidden, match=r'"pods/status"'):
            await StagedWrites(client).write(Patch(KEY, b"{}", subresource="status"))
        with pytest.raises(Forbidden):
            await client.get(Key("secrets", "default", "s"))
        assert requests(metrics, "GET", "", "secrets", 403) == 1
        with pytest.raises(Forbidden):
            client.watch(Selection("secrets"), after=0)

    await acting(tmp_path, test)


async def test_batch_performs_only_allowed_writes(tmp_path: Path) -> None:
    async def test(
        client: AuthorizedClient, base: LocalClient, rights: CountedRights, metrics: Metrics
    ) -> None:
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}
        refused = Create("secrets", "default", msgspec.json.encode(secret))
        results = await client.write_many([refused, CREATE, refused, Delete(KEY)])
        kinds = [type(result) for result in results]
        assert kinds == [Forbidden, Written, Forbidden, Written]
        assert requests(metrics, "DELETE", "", "pods", 200) == 1

    await acting(tmp_path, test)


async def test_a_decision_is_made_once_until_the_roles_change(tmp_path: Path) -> None:
    async def test(
        client: AuthorizedClient, base: LocalClient, rights: CountedRights, metrics: Metrics
    ) -> None:
        for _ in range(5):
            await client.list(Selection(PODS))
        assert rights.asked == 1
        rights.policy.put_role(
            Role(metadata=rights.policy.roles["", "system:controller:job-controller"].metadata)
        )
        with pytest.raises(Forbidden):
            await client.list(Selection(PODS))

    await acting(tmp_path, test)


def test_node_is_authorized_by_its_identity() -> None:
    policy, node = default_policy(), node_user("here")
    wanted = AccessAttributes("patch", "", "pods", "status")
    rights = NodeRights(policy)
    assert rights.allows(node, wanted)
    assert rights.allows(node, AccessAttributes("create", "", "pods"))
    assert not rights.allows(node, AccessAttributes("update", "", "secrets"))
    # A user with a certificate of that name has not.
    assert not ControllerRights(policy).allows(node, wanted)


@pytest.mark.parametrize("account", CONTROLLERS)
def test_no_controller_may_read_secrets_without_a_reason(account: str) -> None:
    rights = ControllerRights(default_policy())
    reads = rights.allows(controller_user(account), AccessAttributes("get", "", "secrets"))
    deletes_all = {
        "generic-garbage-collector",
        "namespace-controller",
        "ttl-after-finished-controller",
    }
    # They hold the credentials of the other cluster, and the objects used by mirrored Jobs.
    copies_them = {"mirror-controller"}
    assert reads is (account in deletes_all | copies_them)


@pytest.mark.virtual_time
async def test_a_staged_write_is_recorded_once_it_is_known_how_it_ended(tmp_path: Path) -> None:
    async def series(client: AuditedClient, committer: FailingCommitter) -> None:
        first = StagedWrites(client)
        await first.write(CREATE)
        await first.durable()
        committer.fails_at = {committer.commits + 1}
        second = StagedWrites(client)
        await second.write(Delete(KEY))
        with pytest.raises(ApiError):
            await second.durable()

    assert await _recorded(tmp_path, series) == [("create", 201), ("delete", 507)]


@pytest.mark.virtual_time
async def test_writes_durable_before_rollback_are_audited_as_done(tmp_path: Path) -> None:
    async def series(client: AuditedClient, committer: FailingCommitter) -> None:
        stage(client, CREATE)
        # Its commit ends while no caller waits for it.
        await asyncio.sleep(1)
        committer.fails_at = {committer.commits + 1}
        with pytest.raises(ApiError):
            await client.durable(stage(client, Delete(KEY)).revision)

    assert await _recorded(tmp_path, series) == [("create", 201), ("delete", 507)]


@pytest.mark.virtual_time
async def test_audited_pods_of_one_template_have_annotations_of_their_own(tmp_path: Path) -> None:
    async def series(client: AuditedClient, committer: FailingCommitter) -> None:
        levels = {"pod-security.kubernetes.io/audit": "baseline"}
        labelled = msgspec.json.encode({"metadata": {"labels": levels}})
        await client._client.write(Patch(Key(NAMESPACES, "", "default"), labelled, "merge"))
        pod = {**POD, "metadata": {"generateName": "p-"}, "spec": {**POD["spec"], "hostPID": True}}
        creation = Create(PODS, "default", msgspec.json.encode(pod))
        writes = StagedWrites(client)
        await writes.write_many([creation, creation])
        await writes.durable()

    events = await _audit_events(tmp_path, series)
    name = "pod-security.kubernetes.io/audit-violations"
    assert [name in event.get("annotations", ()) for event in events] == [True, True]


async def _recorded(
    tmp_path: Path, series: Callable[[AuditedClient, FailingCommitter], Awaitable[None]]
) -> list[tuple[str, int]]:
    """Return verb and code of all audit events of these writes."""
    events = await _audit_events(tmp_path, series)
    return [(event["verb"], event["responseStatus"]["code"]) for event in events]


async def _audit_events(
    tmp_path: Path, series: Callable[[AuditedClient, FailingCommitter], Awaitable[None]]
) -> list[dict[str, Any]]:
    recorded: list[dict[str, Any]] = []

    class Lines:
        def write(self, line: bytes) -> None:
            recorded.append(msgspec.json.decode(line))

    committer = FailingCommitter()
    async with a_cluster(tmp_path, committer=committer) as cluster:
        policy = AuditPolicy(rules=(AuditRule(level="Metadata"),), omit_stages=("RequestReceived",))
        auditor = Auditor(policy, Lines(), cluster.clock.now, Random(1))  # type: ignore[arg-type]
        user, rights = controller_user("job-controller"), ControllerRights(default_policy())
        kinds = cluster.service.kinds
        client = AuditedClient(cluster.client, user, rights, kinds, Metrics(), auditor)
        await series(client, committer)
    return recorded


def test_every_controller_has_a_name_and_a_role() -> None:
    assert ACCOUNTS.keys() == ALL
    assert set(ACCOUNTS.values()) == CONTROLLERS.keys()
