"""The subresource `resize` of Pods over HTTP: methods, permissions, field managers, errors."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from onejob.api.access.authorization import AllowAuthenticated, Attributes, Decision
from onejob.wire.requests import User
from tests.api.http.wire import Wire, serving
from tests.build import a_pod, container, creation
from tests.harness import running

POD = "/api/v1/namespaces/default/pods/p"
RESIZE = f"{POD}/resize"
SIZES = {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}


class WithoutResize(AllowAuthenticated):
    """Authorizer that notes the resources, and permits all but `pods/resize`."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str]] = []
        self.permits = False

    def authorize(self, user: User, attributes: Attributes) -> Decision:
        self.asked.append((attributes.verb, attributes.resource, attributes.subresource))
        return Decision(self.permits or attributes.subresource != "resize", "")


def a_patch(**limits: str) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]}}


async def test_resize_is_read_replaced_patched_and_applied(tmp_path: Path) -> None:
    async with a_server(tmp_path) as wire:
        document = await call(wire, "GET", RESIZE)
        resources = document["spec"]["containers"][0]["resources"]
        assert resources == SIZES
        resources["limits"]["cpu"] = "3"
        document = await call(wire, "PUT", RESIZE, document)
        assert document["metadata"]["generation"] == 2
        document = await call(wire, "PATCH", RESIZE, a_patch(cpu="4"))
        assert document["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "4"}
        applied = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, **a_patch(cpu="5")}
        document = await call(
            wire, "PATCH", f"{RESIZE}?fieldManager=me&force=true", applied,
            content_type="application/apply-patch+yaml",
        )  # fmt: skip
        assert document["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "5"}
        mine = [each for each in document["metadata"]["managedFields"] if each["manager"] == "me"]
        assert [each["subresource"] for each in mine] == ["resize"]
        assert "f:image" not in str(mine)


async def test_errors_of_a_resize_have_causes(tmp_path: Path) -> None:
    async with a_server(tmp_path) as wire:
        status = await call(wire, "PATCH", RESIZE, a_patch(cpu="500m"), code=422)
        assert [cause["field"] for cause in status["details"]["causes"]] == [
            "spec.containers[0].resources.requests"
        ]
        assert (await call(wire, "POST", RESIZE, {}, code=405))["reason"] == "MethodNotAllowed"
        missing = await call(wire, "GET", RESIZE.replace("/p/", "/q/"), code=404)
        assert missing["message"] == 'pods "q" not found'


async def test_resize_has_a_permission_of_its_own(tmp_path: Path) -> None:
    rights = WithoutResize()
    async with a_server(tmp_path, authorizer=rights) as wire:
        await call(wire, "PATCH", POD, {"metadata": {"labels": {"a": "b"}}})
        await call(wire, "PATCH", RESIZE, a_patch(cpu="3"), code=403)
        assert rights.asked[-1] == ("patch", "pods", "resize")
        rights.permits = True
        await call(wire, "PATCH", RESIZE, a_patch(cpu="3"))


async def call(
    wire: Wire,
    method: str,
    path: str,
    body: Any = b"",
    *,
    code: int = 200,
    content_type: str = "application/strategic-merge-patch+json",
) -> dict[str, Any]:
    headers = {"content_type": content_type} if method == "PATCH" else {}
    reply = await wire.call(method, path, body, **headers)
    assert reply.code == code, reply.json()
    document: dict[str, Any] = reply.json()
    return document


@asynccontextmanager
async def a_server(path: Path, **options: Any) -> AsyncIterator[Wire]:
    """Run a server that has one Pod."""
    async with running(path) as plane, serving(plane.service, path, **options) as wire:
        await plane.client.write(creation(a_pod("p", container(resources=SIZES))))
        yield wire
