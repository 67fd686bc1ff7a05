"""TLS trust in both directions: server certificates, and login by client certificate."""

import asyncio
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from onejob.client.answers import Unreachable
from onejob.client.credentials import Credential, CredentialSource, FixedCredential
from onejob.client.http import HttpClient
from onejob.client.kubeconfig import Connection
from onejob.objects.meta import Key
from onejob.wire.errors import Unauthorized
from tests.api.http.client_certificate import make_client_certificate
from tests.api.http.scripted import ScriptedService
from tests.api.http.wire import TOKEN, Wire, with_server

JOB = Key("jobs.batch", "default", "a")
OPERATOR = FixedCredential(Credential(f"Bearer {TOKEN}"))


def connection(wire: Wire, credentials: CredentialSource = OPERATOR) -> Connection:
    return Connection(
        wire.server.url, credentials, authority=wire.certificates.authority.read_bytes()
    )


async def get(connection: Connection) -> bytes:
    client = HttpClient(connection, rng=Random(1))
    try:
        return await client.get(JOB)
    finally:
        await client.close()


def test_a_server_is_believed_only_under_its_authority_and_name(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        good = connection(wire)
        assert await get(good) == b"{}"
        assert await get(replace(good, tls_server_name="localhost")) == b"{}"
        for doubtful in (replace(good, authority=b""), replace(good, tls_server_name="other")):
            with pytest.raises(Unreachable, match="ertificate"):
                await get(doubtful)
        assert await get(replace(good, authority=b"", insecure=True)) == b"{}"

    with_server(ScriptedService({"a": b"{}"}), tmp_path, test)


def test_a_certificate_logs_in(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        pem = make_client_certificate(wire.certificates, tmp_path).read_bytes()
        certificate, marker, key = pem.partition(b"-----BEGIN PRIVATE KEY-----")
        alice = FixedCredential(Credential("", certificate, marker + key))
        assert await get(connection(wire, alice)) == b"{}"
        with pytest.raises(Unauthorized):
            await get(connection(wire, FixedCredential(Credential())))

    with_server(ScriptedService({"a": b"{}"}), tmp_path, test)


class NewCertificate:
    """Plugin whose credential was a token and becomes a certificate."""

    def __init__(self, certificate: Credential) -> None:
        self._certificate = certificate

    async def current(self) -> Credential:
        return Credential("Bearer stale")

    async def renewed(self, refused: Credential) -> Credential | None:
        return self._certificate


def test_a_new_certificate_gets_new_connections(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        pem = make_client_certificate(wire.certificates, tmp_path).read_bytes()
        certificate, marker, key = pem.partition(b"-----BEGIN PRIVATE KEY-----")
        source = NewCertificate(Credential("", certificate, marker + key))
        client = HttpClient(connection(wire, source), rng=Random(1))
        for _ in range(2):
            assert await client.get(JOB) == b"{}"
        many = await asyncio.gather(*(client.get(JOB) for _ in range(5)))
        assert many == [b"{}"] * 5
        await client.close()

    with_server(ScriptedService({"a": b"{}"}), tmp_path, test)
