"""Client credentials and their renewal: static tokens, files and exec plugins."""

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from onejob.clock import Clock
from onejob.wire.errors import Unauthorized

#: Credentials are renewed this long before they expire, so that none expires in flight.
_RENEW_BEFORE: Final = timedelta(seconds=60)
#: Seconds for which the contents of a credential file are cached.
_FILE_SECONDS: Final = 60.0
#: Seconds that a plugin may take. It runs without a terminal, so interactive prompts cannot work.
_PLUGIN_SECONDS: Final = 30.0
_MAX_STDERR: Final = 500


@dataclass(frozen=True, slots=True)
class Credential:
    """Credentials of a client; each field may be empty.

    `authorization` is the value of the Authorization header; certificate and key are PEM.
    """

    authorization: str = field(default="", repr=False)
    certificate: bytes = field(default=b"", repr=False)
    key: bytes = field(default=b"", repr=False)


class CredentialSource(Protocol):
    """Source of credentials. All failures are `Unauthorized`."""

    async def current(self) -> Credential:
        """Return a valid credential; renew it first if it is about to expire."""

    async def renewed(self, refused: Credential) -> Credential | None:
        """Return another credential after the server refused this one; None if there is none."""


@dataclass(frozen=True, slots=True)
class FixedCredential:
    """Credential that never changes."""

    credential: Credential

    async def current(self) -> Credential:
        return self.credential

    async def renewed(self, refused: Credential) -> Credential | None:
        return None


class CredentialFiles:
    """Token, or certificate and key, in files that another program keeps fresh.

    Values given as text or bytes instead of paths are constant.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        token: Path | str = "",
        certificate: Path | bytes = b"",
        key: Path | bytes = b"",
    ) -> None:
        self._clock = clock
        self._token = token
        self._certificate = certificate
        self._key = key
        self._credential = Credential()
        self._read_at: float | None = None

    async def current(self) -> Credential:
        now = self._clock.monotonic()
        if self._read_at is None or now - self._read_at >= _FILE_SECONDS:
            self._read()
        return self._credential

    async def renewed(self, refused: Credential) -> Credential | None:
        self._read()
        return self._credential if self._credential != refused else None

    def _read(self) -> None:
        """Read all files again. Raises Unauthorized."""
        token = self._token
        if isinstance(token, Path):
            token = _file(token, "token").decode("utf-8", "replace").strip()
            if not token:
                raise Unauthorized(f"the token file {self._token} is empty")
        self._credential = Credential(
            f"Bearer {token}" if token else "",
            _file(self._certificate, "client certificate"),
            _file(self._key, "client key"),
        )
        self._read_at = self._clock.monotonic()


def _file(source: Path | bytes, what: str) -> bytes:
    """Return the content of a file, or inline data. Raises Unauthorized."""
    if isinstance(source, bytes):
        return source
    try:
        return source.read_bytes()
    except OSError as error:
        raise Unauthorized(f"cannot read the {what} file: {error}") from error


@dataclass(frozen=True, slots=True)
class PluginCommand:
    """The `exec` section of a kubeconfig user."""

    command: str
    api_version: str
    arguments: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    #: Cluster information passed to the plugin if its section has `provideClusterInfo`.
    cluster: Mapping[str, Any] | None = None
    install_hint: str = ""


class _Status(msgspec.Struct, rename="camel"):
    expiration_timestamp: datetime | None = None
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""


class _ExecCredential(msgspec.Struct, rename="camel"):
    kind: str = ""
    api_version: str = ""
    status: _Status | None = None


class ExecPlugin:
    """Credentials from an exec plugin, run at first use, before expiry and once per refusal.

    Concurrent requests wait for the same run; a second process is never started.
    """

    def __init__(
        self, plugin: PluginCommand, clock: Clock, *, seconds: float = _PLUGIN_SECONDS
    ) -> None:
        self._plugin = plugin
        self._seconds = seconds
        self._clock = clock
        self._credential: Credential | None = None
        self._expires_at: datetime | None = None
        self._running = asyncio.Lock()

    async def current(self) -> Credential:
        credential = self._valid_credential()
        if credential is not None:
            return credential
        async with self._running:
            return self._valid_credential() or await self._run()

    async def renewed(self, refused: Credential) -> Credential | None:
        async with self._running:
            # Another request may have renewed the credential while this one waited.
            if self._credential is not None and self._credential != refused:
                return self._credential
            return await self._run()

    def _valid_credential(self) -> Credential | None:
        """Return the last credential; None if there is none or it expires soon."""
        expires_at = self._expires_at
        if expires_at is not None and self._clock.now() >= expires_at - _RENEW_BEFORE:
            return None
        return self._credential

    async def _run(self) -> Credential:
        """Run the plugin and keep its credential. Raises Unauthorized."""
        status = _read_credential(self._plugin, await self._run_plugin())
        self._expires_at = status.expiration_timestamp
        self._credential = Credential(
            f"Bearer {status.token}" if status.token else "",
            status.client_certificate_data.encode(),
            status.client_key_data.encode(),
        )
        return self._credential

    async def _run_plugin(self) -> bytes:
        """Run the plugin and return its stdout."""
        plugin = self._plugin
        spec: dict[str, Any] = {"interactive": False}
        if plugin.cluster is not None:
            spec["cluster"] = plugin.cluster
        info = {"kind": "ExecCredential", "apiVersion": plugin.api_version, "spec": spec}
        environment = {
            **os.environ,
            **plugin.environment,
            "KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode(),
        }
        try:
            process = await asyncio.create_subprocess_exec(
                plugin.command,
                *plugin.arguments,
                env=environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                # In a process group of its own, so that its child processes are killed with it.
                start_new_session=True,
            )
        except OSError as error:
            hint = f"; {_one_line(plugin.install_hint)}" if plugin.install_hint else ""
            raise Unauthorized(f"getting credentials: exec: {error}{hint}") from error
        try:
            async with asyncio.timeout(self._seconds):
                output, errors = await process.communicate()
        except TimeoutError as slow:
            raise Unauthorized(
                f"getting credentials: {plugin.command} timed out after {self._seconds:g} seconds"
            ) from slow
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        if process.returncode != 0:
            text = _one_line(errors.decode("utf-8", "replace"))[-_MAX_STDERR:]
            raise Unauthorized(
                f"getting credentials: {plugin.command} failed with exit code "
                f"{process.returncode}{f': {text}' if text else ''}"
            )
        return output


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _read_credential(plugin: PluginCommand, output: bytes) -> _Status:
    """Return the credential that a plugin has printed. Raises Unauthorized."""
    try:
        answer = msgspec.json.decode(output, type=_ExecCredential)
    except msgspec.DecodeError as error:
        raise Unauthorized(
            f"getting credentials: decoding the output of {plugin.command}: {error}"
        ) from error
    if answer.kind != "ExecCredential" or answer.api_version != plugin.api_version:
        raise Unauthorized(
            f"getting credentials: {plugin.command} returned {answer.kind} in "
            f"{answer.api_version}, expected ExecCredential in {plugin.api_version}"
        )
    status = answer.status
    has_certificate = status is not None and bool(status.client_certificate_data)
    has_key = status is not None and bool(status.client_key_data)
    if status is None or has_certificate != has_key or not (status.token or has_certificate):
        raise Unauthorized(f"getting credentials: {plugin.command} returned no usable credential")
    return status
