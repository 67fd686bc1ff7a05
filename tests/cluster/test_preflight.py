"""Preflight checks of the controllers: one line and exit code 2, without hanging."""

import asyncio
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from onejob.api.access.authorization import AllowAuthenticated, Attributes, Decision
from onejob.client.credentials import Credential, ExecPlugin, FixedCredential, PluginCommand
from onejob.client.kubeconfig import Connection, load_kubeconfig
from onejob.clock import SystemClock
from onejob.cluster.manager import Manager, Settings
from onejob.cluster.preflight import PreflightError
from onejob.gates import FeatureGates
from onejob.wire.requests import User
from tests.cli.command_line import CommandLine
from tests.harness import HttpPlane, running_http


class AllBut:
    """Authorizer that refuses some requests of all users."""

    def __init__(self, *refused: tuple[str, str, str]) -> None:
        self._refused = refused

    def authorize(self, user: User, attributes: Attributes) -> Decision:
        resource = "/".join(filter(None, (attributes.resource, attributes.subresource)))
        if (attributes.verb, resource, attributes.namespace) in self._refused:
            return Decision(False)
        return AllowAuthenticated().authorize(user, attributes)


async def check(
    folder: Path,
    settings: Settings | None = None,
    change: Callable[[Connection], Connection] = lambda connection: connection,
    **options: Any,
) -> str:
    async with running_http(folder, **options) as plane, asyncio.timeout(30):
        connection = change(load_kubeconfig(plane.kubeconfig, SystemClock()))
        return await Manager(settings or Settings(), connection).check()


async def test_a_server_that_has_all_that_is_needed_is_accepted(tmp_path: Path) -> None:
    assert (await check(tmp_path)).startswith("v1.")


async def test_all_permissions_that_are_missing_are_listed(tmp_path: Path) -> None:
    refused = AllBut(
        ("create", "pods", ""),
        ("patch", "jobs/status", ""),
        ("update", "leases", "default"),
        ("list", "pods", "elsewhere"),
    )
    with pytest.raises(PreflightError) as raised:
        await check(tmp_path, Settings(leader_elect=True), authorizer=refused)
    assert str(raised.value) == (
        "missing permissions: patch jobs/status.batch, create pods, update "
        "leases.coordination.k8s.io in namespace default"
    )


async def test_permissions_are_asked_for_where_they_are_needed(tmp_path: Path) -> None:
    refused = AllBut(("list", "pods", ""), ("update", "leases", "default"), ("get", "pods", "b"))
    with pytest.raises(PreflightError, match=r"missing permissions: get pods in namespace b$"):
        await check(tmp_path, Settings(namespaces=("a", "b")), authorizer=refused)


async def test_a_server_that_drops_managed_by_is_refused(tmp_path: Path) -> None:
    gates = FeatureGates({"JobManagedBy": False})
    with pytest.raises(PreflightError, match=r"drops spec\.managedBy") as raised:
        await check(tmp_path, gates=gates)
    assert "1.32" in raised.value.next_step


async def test_a_dry_run_leaves_no_job_behind(tmp_path: Path) -> None:
    async with running_http(tmp_path) as plane:
        before = plane.store.revision
        await Manager(Settings(), load_kubeconfig(plane.kubeconfig, SystemClock())).check()
        assert plane.store.revision == before


PLUGIN = "client.authentication.k8s.io/v1"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (("sleep", "1000"), "sleep timed out after 0.3 seconds"),
        (("echo", "rubbish"), "decoding the output of echo"),
        (("sh", "-c", "echo broken >&2; echo twice >&2; exit 7"), "exit code 7: broken twice"),
        (("/nonexistent",), "No such file"),
    ],
)
async def test_plugin_without_credential_fails_with_one_line(
    tmp_path: Path, command: tuple[str, ...], message: str
) -> None:
    plugin = PluginCommand(command[0], PLUGIN, command[1:])
    source = ExecPlugin(plugin, SystemClock(), seconds=0.3)
    with pytest.raises(PreflightError, match=message) as raised:
        await check(tmp_path, change=lambda connection: replace(connection, credentials=source))
    assert "\n" not in str(raised.value)


async def test_invalid_ca_certificate_fails_with_one_line(tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match="not a PEM certificate"):
        await check(tmp_path, change=lambda connection: replace(connection, authority=b"CA"))


async def test_invalid_client_certificate_fails_with_one_line(tmp_path: Path) -> None:
    bad = FixedCredential(Credential("", b"CERT", b"KEY"))
    with pytest.raises(PreflightError, match="cannot use the client certificate and its key"):
        await check(tmp_path, change=lambda connection: replace(connection, credentials=bad))


@pytest.mark.parametrize("answer", [b"<html>hello</html>", b"[]", b"{}"])
async def test_non_kubernetes_server_is_reported(answer: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(answer), answer))
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        anyone = FixedCredential(Credential("Bearer t"))
        connection = Connection(f"http://127.0.0.1:{port}", anyone)
        with pytest.raises(PreflightError, match="not from an API server"):
            await Manager(Settings(), connection).check()


# --- the command --------------------------------------------------------------------------


async def complaint(home: Path, *words: str) -> str:
    """Return the one line that the command prints before it ends with exit code 2."""
    line = CommandLine(home)
    process = await asyncio.create_subprocess_exec(
        *line.arguments("controller", *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=line.environment,
        cwd=home,
    )
    async with asyncio.timeout(60):
        output, errors = await process.communicate()
    assert (process.returncode, output) == (2, b""), errors.decode()
    (only,) = errors.decode().splitlines()
    return only


async def with_plane(folder: Path, test: Callable[[HttpPlane], Any], **options: Any) -> None:
    async with running_http(folder, **options) as plane:
        await test(plane)


def changed(plane: HttpPlane, folder: Path, section: str, **values: Any) -> str:
    """Return the server's kubeconfig with other values for its cluster or its user."""
    config = json.loads(plane.kubeconfig.read_text())
    config[f"{section}s"][0][section].update(values)
    path = folder / "changed"
    path.write_text(json.dumps(config))
    return str(path)


async def test_an_unreachable_server_ends_the_command(tmp_path: Path) -> None:
    async def test(plane: HttpPlane) -> None:
        nobody = changed(plane, tmp_path, "cluster", server="https://127.0.0.1:1")
        said = await complaint(tmp_path, "--kubeconfig", nobody)
        assert said.startswith("error: no response from https://127.0.0.1:1: ")
        assert said.endswith("(check the address, and that the server is running)")

    await with_plane(tmp_path, test)


async def test_a_wrong_authority_ends_the_command(tmp_path: Path) -> None:
    async def test(plane: HttpPlane) -> None:
        config = json.loads(plane.kubeconfig.read_text())
        del config["clusters"][0]["cluster"]["certificate-authority-data"]
        path = tmp_path / "changed"
        path.write_text(json.dumps(config))
        said = await complaint(tmp_path, "--kubeconfig", str(path))
        assert f"{plane.server.url} has an untrusted certificate: unable to get" in said
        assert "certificate-authority" in said

    await with_plane(tmp_path, test)


async def test_credentials_that_are_refused_end_the_command(tmp_path: Path) -> None:
    async def test(plane: HttpPlane) -> None:
        expired = changed(plane, tmp_path, "user", token="expired")
        said = await complaint(tmp_path, "--kubeconfig", expired)
        assert said == (
            "error: the server rejected the credentials: Unauthorized (check that they are for "
            "this cluster and have not expired)"
        )

    await with_plane(tmp_path, test)


async def test_a_plugin_that_fails_ends_the_command(tmp_path: Path) -> None:
    async def test(plane: HttpPlane) -> None:
        plugin = {"apiVersion": PLUGIN, "command": sys.executable, "args": ["-c", "1/0"]}
        config = changed(plane, tmp_path, "user", exec=plugin)
        said = await complaint(tmp_path, "--kubeconfig", config)
        assert "failed with exit code 1" in said
        assert "ZeroDivisionError" in said

    await with_plane(tmp_path, test)


async def test_a_server_of_too_old_a_version_ends_the_command(tmp_path: Path) -> None:
    async def test(plane: HttpPlane) -> None:
        said = await complaint(tmp_path, "--kubeconfig", str(plane.kubeconfig))
        assert "drops spec.managedBy of Jobs" in said
        assert "use Kubernetes 1.32" in said

    await with_plane(tmp_path, test, gates=FeatureGates({"JobManagedBy": False}))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--kubeconfig", "nope"), "nope: No such file or directory"),
        ((), "no kubeconfig specified"),
        (("--context", "x", "--kubeconfig", "{config}"), "no context named 'x'"),
        (("--manager-name", "me"), "use a domain and a path"),
        (("--manager-name", "kubernetes.io/job-controller"), "the built-in controller"),
        (("--leader-elect-lease-duration", "5"), "a second longer than the renew deadline"),
        (("--metrics-listen", "nowhere"), "nowhere"),
        (("--qps", "-1"), "qps"),
    ],
)
def test_bad_options_end_the_command(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    config = tmp_path / "config"
    config.write_text("{}")
    given = [word.format(config=config) for word in words]
    assert message in asyncio.run(complaint(tmp_path, *given))
