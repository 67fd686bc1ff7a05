"""Rotation of keys, tokens and certificates of a running server."""

import json
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest

from onejob.cli.sources.base import ApiRequest
from onejob.cli.sources.http_api import open_http_api
from onejob.wire.errors import Unauthorized
from tests.cli.command_line import CommandLine

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"


def send(kubeconfig: Path, method: str, path: str, body: Any = None) -> Any:
    api = open_http_api(kubeconfig, "")
    try:
        return api.send(
            ApiRequest(method, path, body=json.dumps(body).encode() if body else b"")
        ).document
    finally:
        api.close()


def shown_certificate(kubeconfig: Path) -> bytes:
    server = json.loads(kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
    host, _, port = server.removeprefix("https://").rpartition(":")
    context = ssl.create_default_context(cafile=str(kubeconfig.parent / "server/pki/ca.crt"))
    with (
        socket.create_connection((host, int(port)), timeout=30) as plain,
        context.wrap_socket(plain, server_hostname=host) as connection,
    ):
        found = connection.getpeercert(binary_form=True)
        assert found is not None
        return found


def test_another_admin_token_counts_at_once(served: CommandLine) -> None:
    kubeconfig = served.data_dir / "kubeconfig"
    old = served.home / "old.kubeconfig"
    old.write_bytes(kubeconfig.read_bytes())
    assert send(old, "GET", "/api/v1/namespaces")
    done = served.run("rotate", "admin-token")
    assert done.returncode == 0, done.stderr
    assert send(kubeconfig, "GET", "/api/v1/namespaces")
    assert kubeconfig.stat().st_mode & 0o777 == 0o600
    with pytest.raises(Unauthorized):
        send(old, "GET", "/api/v1/namespaces")


def test_another_server_certificate_is_shown_to_the_next_connection(served: CommandLine) -> None:
    kubeconfig = served.data_dir / "kubeconfig"
    before = shown_certificate(kubeconfig)
    assert shown_certificate(kubeconfig) == before
    done = served.run("rotate", "server-certificate")
    assert done.returncode == 0, done.stderr
    assert shown_certificate(kubeconfig) != before
    assert send(kubeconfig, "GET", "/api/v1/namespaces")


def test_a_certificate_that_cannot_be_used_is_not_shown(served: CommandLine) -> None:
    kubeconfig = served.data_dir / "kubeconfig"
    before = shown_certificate(kubeconfig)
    certificate = served.data_dir / "server/pki/server.crt"
    good = certificate.read_bytes()
    certificate.write_bytes(b"nonsense")
    try:
        assert shown_certificate(kubeconfig) == before
    finally:
        certificate.write_bytes(good)


def test_another_key_signs_tokens_and_older_ones_hold(served: CommandLine) -> None:
    kubeconfig = served.data_dir / "kubeconfig"

    def token() -> str:
        request: dict[str, Any] = {"spec": {"expirationSeconds": 600}}
        made = send(kubeconfig, "POST", f"{ACCOUNTS}/default/token", request)
        text: str = made["status"]["token"]
        return text

    def is_known(text: str) -> bool:
        path = "/apis/authentication.k8s.io/v1/tokenreviews"
        review = send(kubeconfig, "POST", path, {"spec": {"token": text}})
        return bool(review["status"].get("authenticated"))

    old = token()
    done = served.run("rotate", "token-key")
    assert done.returncode == 0, done.stderr
    new = token()
    assert old.split(".")[0] != new.split(".")[0]
    assert is_known(old)
    assert is_known(new)
    assert len(send(kubeconfig, "GET", "/openid/v1/jwks")["keys"]) == 2
    configuration = send(kubeconfig, "GET", "/.well-known/openid-configuration")
    assert configuration["jwks_uri"].endswith("/openid/v1/jwks")


def test_there_must_be_a_server(onejob: CommandLine) -> None:
    done = onejob.run("rotate", "token-key")
    assert done.returncode == 2
    assert "no server in" in done.stderr
