"""Server start with damaged documents: it recreates its own objects and serves all others."""

import asyncio
from pathlib import Path

import apsw
import msgspec
import pytest

from onejob.client.base import Create
from onejob.control_plane import ControlPlane, Dependencies, Settings
from onejob.node.options import NodeOptions
from onejob.objects.meta import JOBS, Key
from onejob.planning.queue.limits import Limits
from onejob.store.writer import LoopCommitter
from onejob.virtual_time import run_virtual, virtual_clock
from onejob.wire.errors import NotFound
from onejob.wire.requests import DeleteOptions, Target
from tests.upgrade.support import job

pytestmark = pytest.mark.virtual_time


async def _plane(folder: Path) -> ControlPlane:
    node = NodeOptions("simulated", "node", {"cpu": "4", "pods": "10"})
    world = Dependencies(clock=virtual_clock(), committer=LoopCommitter())
    settings = Settings(folder, node, queue_limits=Limits({"*": 3}), with_access=True)
    plane = await ControlPlane.start(settings, world)
    # Let the controllers finish their start; in virtual time that takes none.
    await asyncio.sleep(5)
    return plane


def _objects(plane: ControlPlane) -> set[Key]:
    return {
        stored.key
        for resource in plane.service.kinds.by_resource
        if resource != "events"
        for stored in plane.store.list(resource).items
    }


def _damage(folder: Path, condition: str = "TRUE") -> None:
    connection = apsw.Connection(str(folder / "onejob.db"))
    connection.execute(f"UPDATE log SET value = x'7b' WHERE value IS NOT NULL AND {condition}")
    connection.close()


@pytest.fixture
def server(tmp_path: Path) -> tuple[Path, set[Key]]:
    """Return the folder of a stopped server and the objects that it created by itself."""
    folder = tmp_path / "server"
    (folder / "pki").mkdir(parents=True, mode=0o700)
    folder.chmod(0o700)

    async def live() -> set[Key]:
        plane = await _plane(folder)
        own = _objects(plane)
        await plane.client.write(Create(JOBS, "default", job("pi", suspend=True)))
        await plane.stop()
        return own

    return folder, run_virtual(live())


async def test_start_recreates_all_own_objects_when_every_document_is_damaged(
    server: tuple[Path, set[Key]],
) -> None:
    folder, own = server
    assert {resource for resource, _, _ in own} >= {
        "namespaces",
        "services",
        "clusterroles.rbac.authorization.k8s.io",
        "clusterrolebindings.rbac.authorization.k8s.io",
        "serviceaccounts",
        "configmaps",
        "nodes",
        "leases.coordination.k8s.io",
    }
    _damage(folder)
    plane = await _plane(folder)
    assert own <= _objects(plane)
    # Damaged objects of users stay where they are, for their owners to restore or delete.
    assert set(plane.store.damaged) == {Key(JOBS, "default", "pi")}
    await plane.stop()
    plane = await _plane(folder)
    assert own <= _objects(plane)
    await plane.stop()


async def test_delete_answers_not_found_while_a_damaged_object_is_being_deleted(
    server: tuple[Path, set[Key]],
) -> None:
    """Regression: the second of two concurrent deletions ended the server."""
    folder, _ = server
    _damage(folder, "name = 'pi'")
    plane = await _plane(folder)
    service = plane.service
    target = Target(service.kinds.by_resource[JOBS], "default", "pi")
    options = DeleteOptions(despite_damage=True)
    revision = service.writes.delete(target, options).revision
    with pytest.raises(NotFound):
        service.writes.delete(target, options)
    await plane.store.durable(revision)
    assert not plane.store.damaged
    assert not plane.failed.done()
    await plane.stop()


@pytest.mark.parametrize(
    ("resource", "name"),
    [("services", "kubernetes"), ("clusterroles.rbac.authorization.k8s.io", "edit")],
)
async def test_start_recreates_one_damaged_own_object(
    server: tuple[Path, set[Key]], resource: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    folder, own = server
    _damage(folder, f"resource = '{resource}' AND name = '{name}'")
    plane = await _plane(folder)
    assert own <= _objects(plane)
    assert not plane.store.damaged
    (key,) = (key for key in own if (key.resource, key.name) == (resource, name))
    document = msgspec.json.decode(await plane.client.get(key))
    assert document["metadata"]["name"] == name
    await plane.stop()
    assert f"{name} is damaged" in caplog.text
    assert f"{name} was damaged and has been recreated" in caplog.text
