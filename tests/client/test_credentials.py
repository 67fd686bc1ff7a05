"""Expiring credentials: renewed in time, once per refusal, by one run at a time."""

import asyncio
import json
import stat
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from onejob.client.credentials import Credential, CredentialFiles, ExecPlugin, PluginCommand
from onejob.wire.errors import Unauthorized
from tests.node.support import until_dead

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
V1 = "client.authentication.k8s.io/v1"


class HandClock:
    """Clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime:
        return NOON + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds


def plugin(directory: Path, status: dict[str, Any] | None, **command: Any) -> PluginCommand:
    """Return a program that counts its runs and prints `status`, {n} being the run's number."""
    answer = {"kind": "ExecCredential", "apiVersion": V1, "status": status}
    script = directory / "plugin"
    script.write_text(
        f"#!{sys.executable}\n"
        "import json, os, pathlib, sys\n"
        f"runs = pathlib.Path({str(directory / 'runs')!r})\n"
        "n = len(runs.read_text()) + 1 if runs.exists() else 1\n"
        "runs.write_text('x' * n)\n"
        f"info = pathlib.Path({str(directory / 'info')!r})\n"
        "info.write_text(os.environ['KUBERNETES_EXEC_INFO'])\n"
        f"print({json.dumps(answer)!r}.replace('{{n}}', str(n)))\n"
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return PluginCommand(str(script), V1, **command)


def runs(directory: Path) -> int:
    return len((directory / "runs").read_text())


async def test_a_plugin_runs_once_for_many(tmp_path: Path) -> None:
    source = ExecPlugin(plugin(tmp_path, {"token": "t{n}"}), HandClock())
    found = await asyncio.gather(*(source.current() for _ in range(10)))
    assert {credential.authorization for credential in found} == {"Bearer t1"}
    assert (await source.current()).authorization == "Bearer t1"
    assert runs(tmp_path) == 1
    info = json.loads((tmp_path / "info").read_text())
    assert info == {"kind": "ExecCredential", "apiVersion": V1, "spec": {"interactive": False}}


async def test_a_credential_is_renewed_before_it_expires(tmp_path: Path) -> None:
    status = {"token": "t{n}", "expirationTimestamp": "2026-01-01T12:10:00Z"}
    clock = HandClock()
    source = ExecPlugin(plugin(tmp_path, status), clock)
    assert (await source.current()).authorization == "Bearer t1"
    clock.seconds = 9 * 60 - 1
    assert (await source.current()).authorization == "Bearer t1"
    clock.seconds = 9 * 60
    assert (await source.current()).authorization == "Bearer t2"


async def test_many_refusals_of_one_credential_renew_it_once(tmp_path: Path) -> None:
    source = ExecPlugin(plugin(tmp_path, {"token": "t{n}"}), HandClock())
    refused = await source.current()
    found = await asyncio.gather(*(source.renewed(refused) for _ in range(5)))
    assert [c.authorization for c in found if c] == ["Bearer t2"] * 5
    assert runs(tmp_path) == 2


async def test_a_plugin_may_give_a_certificate(tmp_path: Path) -> None:
    status = {"clientCertificateData": "CERT", "clientKeyData": "KEY"}
    assert await ExecPlugin(plugin(tmp_path, status), HandClock()).current() == Credential(
        "", b"CERT", b"KEY"
    )


def test_plugin_gets_cluster_info_if_requested(tmp_path: Path) -> None:
    command = plugin(tmp_path, {"token": "t"}, cluster={"server": "https://h"})
    asyncio.run(ExecPlugin(command, HandClock()).current())
    assert json.loads((tmp_path / "info").read_text())["spec"]["cluster"] == {"server": "https://h"}


@pytest.mark.parametrize(
    "status", [None, {}, {"clientCertificateData": "CERT"}, {"token": "t", "clientKeyData": "K"}]
)
def test_an_answer_without_a_credential_is_refused(
    tmp_path: Path, status: dict[str, Any] | None
) -> None:
    source = ExecPlugin(plugin(tmp_path, status), HandClock())
    with pytest.raises(Unauthorized, match="no usable credential"):
        asyncio.run(source.current())


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (PluginCommand("/nonexistent/plugin", V1, install_hint="get it"), "get it"),
        (PluginCommand("sh", V1, ("-c", "echo no >&2; exit 3")), "exit code 3: no"),
        (PluginCommand("echo", V1, ("hello",)), "decoding the output"),
        (PluginCommand("echo", V1, ('{"kind":"ExecCredential"}',)), "expected ExecCredential"),
    ],
)
def test_failed_plugin_error_has_reason(command: PluginCommand, message: str) -> None:
    with pytest.raises(Unauthorized, match=message):
        asyncio.run(ExecPlugin(command, HandClock()).current())


async def test_a_token_file_is_read_again_after_a_minute(tmp_path: Path) -> None:
    path, clock = tmp_path / "token", HandClock()
    path.write_text("one")
    source = CredentialFiles(clock, token=path)
    first = await source.current()
    path.write_text("two")
    assert await source.current() == first
    clock.seconds = 60
    assert (await source.current()).authorization == "Bearer two"


async def test_a_refused_token_is_read_again_at_once(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("one")
    source = CredentialFiles(HandClock(), token=path)
    refused = await source.current()
    assert await source.renewed(refused) is None
    path.write_text("two")
    assert await source.renewed(refused) == Credential("Bearer two")
    path.unlink()
    with pytest.raises(Unauthorized):
        await source.renewed(refused)


async def test_hanging_plugin_is_killed_with_its_children(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"sleep 1000 & echo $$ $! > {pids}; wait"
    command = PluginCommand("sh", V1, ("-c", script))
    with pytest.raises(Unauthorized, match="sh timed out after 2 seconds"):
        await ExecPlugin(command, HandClock(), seconds=2).current()
    for pid in pids.read_text().split():
        # A signal takes its time, and a process without parent may still have to be reaped by
        # init.
        await until_dead(int(pid))


def test_an_empty_token_file_is_no_credential(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("\n")
    with pytest.raises(Unauthorized, match="is empty"):
        asyncio.run(CredentialFiles(HandClock(), token=tmp_path / "token").current())
