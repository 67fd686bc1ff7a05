"""Variables not set by a manifest in this form: those of Services, and odd names."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onejob.client.base import Create
from onejob.control_plane import ControlPlane, Settings
from onejob.node.images import Shell, find_shell
from onejob.node.options import NodeOptions
from onejob.node.setup.service_variables import service_variables
from onejob.objects.meta import PODS, SERVICES, Key
from onejob.objects.service import read_service
from onejob.wire.requests import LogOptions
from tests.node.support import Document, a_pod, a_process_node, needs_namespaces, with_spec


def a_service(name: str, *ports: Document, **spec: object) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"ports": list(ports), **spec},
    }


def variables(*services: Document) -> dict[str, str]:
    views = [read_service(msgspec.json.encode(service)) for service in services]
    return service_variables(views, "127.0.0.1")


def test_service_variables_include_host_ports_and_links() -> None:
    service = a_service(
        "my-db",
        {"name": "client-port", "port": 5432},
        {"name": "probe", "port": 53, "protocol": "UDP"},
        clusterIP="10.0.0.7",
    )
    assert variables(service) == {
        "MY_DB_SERVICE_HOST": "10.0.0.7",
        "MY_DB_SERVICE_PORT": "5432",
        "MY_DB_SERVICE_PORT_CLIENT_PORT": "5432",
        "MY_DB_SERVICE_PORT_PROBE": "53",
        "MY_DB_PORT": "tcp://10.0.0.7:5432",
        "MY_DB_PORT_5432_TCP": "tcp://10.0.0.7:5432",
        "MY_DB_PORT_5432_TCP_PROTO": "tcp",
        "MY_DB_PORT_5432_TCP_PORT": "5432",
        "MY_DB_PORT_5432_TCP_ADDR": "10.0.0.7",
        "MY_DB_PORT_53_UDP": "udp://10.0.0.7:53",
        "MY_DB_PORT_53_UDP_PROTO": "udp",
        "MY_DB_PORT_53_UDP_PORT": "53",
        "MY_DB_PORT_53_UDP_ADDR": "10.0.0.7",
    }


def test_service_without_address_has_the_ports_of_its_pods() -> None:
    ports = ({"name": "a", "port": 443, "targetPort": 9443}, {"name": "b", "port": 80})
    named = {"name": "c", "port": 81, "targetPort": "web"}
    found = variables(a_service("hook", *ports, named))
    assert found["HOOK_SERVICE_PORT"] == "9443"
    assert found["HOOK_PORT_443_TCP"] == "tcp://127.0.0.1:9443"
    assert (found["HOOK_SERVICE_PORT_B"], found["HOOK_SERVICE_PORT_C"]) == ("80", "81")


def test_a_service_without_an_address_is_where_the_node_is_and_a_headless_one_nowhere() -> None:
    plain = a_service("plain", {"port": 80})
    headless = a_service("headless", {"port": 80}, clusterIP="None")
    elsewhere = a_service("elsewhere", type="ExternalName", externalName="example.org")
    found = variables(plain, headless, elsewhere)
    assert found["PLAIN_SERVICE_HOST"] == "127.0.0.1"
    assert all(name.startswith("PLAIN_") for name in found)


@pytest.mark.parametrize("wanted", [True, False])
async def test_pods_hear_of_the_services_of_their_namespace_unless_they_do_not_want_to(
    tmp_path: Path, wanted: bool
) -> None:
    pod = a_pod("env", env=[{"name": "URL", "value": "http://$(HERE_SERVICE_HOST)/"}])
    pod = with_spec(pod, enableServiceLinks=wanted)
    plane = await ControlPlane.start(Settings(tmp_path, NodeOptions(pods_end_with_server=True)))
    try:
        client = plane.client
        for namespace, name in (("default", "here"), ("kube-system", "there")):
            body = msgspec.json.encode(a_service(name, {"port": 80}))
            written = await client.write(Create(SERVICES, namespace, body))
            await plane.informers.services.reached(written.revision)
        await client.write(Create(PODS, "default", msgspec.json.encode(pod)))
        async with asyncio.timeout(60):
            while True:
                found = msgspec.json.decode(await client.get(Key(PODS, "default", "p")))
                if found["status"]["phase"] == "Succeeded":
                    break
                await asyncio.sleep(0.01)
        chunks = plane.node.logs("default", "p", "", LogOptions())
        lines = b"".join([chunk async for chunk in chunks]).decode().splitlines()
    finally:
        await plane.stop()
    assert ("HERE_SERVICE_PORT=80" in lines) is wanted
    assert ("URL=http://127.0.0.1/" in lines) is wanted
    assert not any("THERE" in line for line in lines)
    assert not any(line.startswith("KUBERNETES_") for line in lines), "it has no token"


ODD = [{"name": "data-1", "value": "one"}, {"name": "2.x", "value": "two"}]


async def told(path: Path, *command: str, **container: Any) -> set[str]:
    async with a_process_node(path) as node:
        pod = a_pod(*command, env=ODD, **container)
        await node.run(with_spec(pod, volumes=[{"name": "v", "emptyDir": {}}]))
        return set((await node.output("p")).splitlines())


@pytest.mark.parametrize("shell", ["sh", "/bin/sh"])
async def test_a_shell_hands_on_variables_whose_names_it_cannot_use(
    tmp_path: Path, shell: str
) -> None:
    assert await told(tmp_path, shell, "-c", "env") >= {"data-1=one", "2.x=two"}


@needs_namespaces
async def test_so_does_the_shell_of_a_script(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\nenv\n")
    script.chmod(0o755)
    mount = [{"name": "v", "mountPath": "/data"}]
    assert await told(tmp_path, str(script), volumeMounts=mount) >= {"data-1=one", "2.x=two"}


def test_another_shell_is_taken_only_for_such_names() -> None:
    both = Shell("/bin/busybox", "/bin/dash", "/bin/bash")
    assert both.for_variables(["PATH", "_", "a1"]).program == "/bin/busybox"
    assert both.for_variables(["PATH", "data-1"]).program == "/bin/bash"
    assert both.for_variables(["1a"]).program == "/bin/bash"
    assert both.for_variables(["gr\xfc\xdfe"]).program == "/bin/bash"
    assert Shell("/bin/busybox", "/bin/dash").for_variables(["data-1"]).program == "/bin/busybox"
    assert both.program_for("sh", ["PATH"]) == "/bin/busybox"
    assert both.program_for("/bin/sh", ["data-1"]) == "/bin/bash"
    assert both.program_for("true", ["data-1"]) == ""
    assert find_shell("/nowhere") == Shell("")
