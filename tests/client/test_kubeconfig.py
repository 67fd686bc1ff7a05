"""Kubeconfigs: server, trust and identity."""

import asyncio
import base64
import json
import textwrap
from pathlib import Path

import pytest

from onejob.api.access.kubeconfig_writer import write_kubeconfig
from onejob.client.credentials import Credential, CredentialFiles, ExecPlugin
from onejob.client.kubeconfig import (
    Connection,
    InvalidKubeconfig,
    find_connection,
    in_cluster,
    load_kubeconfig,
)
from onejob.clock import SystemClock

CLOCK = SystemClock()


def write(path: Path, text: str) -> Path:
    path.write_text(textwrap.dedent(text))
    return path


def credential(connection: Connection) -> Credential:
    return asyncio.run(connection.credentials.current())


def test_the_one_we_write_is_the_one_we_read(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "kubeconfig"
    write_kubeconfig(path, server="https://127.0.0.1:7443", authority=b"PEM", token="secret")
    connection = load_kubeconfig(path, CLOCK)
    assert connection.server == "https://127.0.0.1:7443"
    assert connection.authority == b"PEM"
    assert connection.compress is False
    assert connection.namespace == "default"
    assert credential(connection).authorization == "Bearer secret"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(path.parent.iterdir()) == [path]


def test_secrets_do_not_show_up_in_logs(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    write_kubeconfig(path, server="https://h:1", authority=b"", token="secret")
    assert "secret" not in repr(load_kubeconfig(path, CLOCK))


FULL = f"""
    apiVersion: v1
    kind: Config
    current-context: one
    contexts:
    - name: one
      context: {{cluster: c1, user: u1, namespace: team}}
    - name: two
      context: {{cluster: c2, user: u2}}
    - name: nobody
      context: {{cluster: c1}}
    - name: broken
      context: {{cluster: gone, user: u1}}
    - name: basic
      context: {{cluster: c1, user: u3}}
    clusters:
    - name: c1
      cluster:
        server: https://one.example:6443/
        certificate-authority: ca.pem
        tls-server-name: other.example
        proxy-url: http://proxy:3128
    - name: c2
      cluster: {{server: "https://two", insecure-skip-tls-verify: true}}
    users:
    - name: u1
      user:
        client-certificate-data: {base64.b64encode(b"CERT").decode()}
        client-key-data: {base64.b64encode(b"KEY").decode()}
    - name: u2
      user: {{tokenFile: token}}
    - name: u3
      user: {{username: a, password: b}}
"""


def of_user(user: str, cluster: str = "") -> str:
    return (
        "current-context: x\n"
        "contexts: [{name: x, context: {cluster: c, user: u}}]\n"
        f'clusters: [{{name: c, cluster: {{server: "https://h", {cluster}}}}}]\n'
        f"users: [{{name: u, user: {user}}}]\n"
    )


def test_the_current_context_is_used(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_bytes(b"CA")
    connection = load_kubeconfig(write(tmp_path / "config", FULL), CLOCK)
    assert connection.server == "https://one.example:6443"
    assert connection.authority == b"CA"
    assert connection.tls_server_name == "other.example"
    assert connection.proxy == "http://proxy:3128"
    assert connection.namespace == "team"
    assert connection.insecure is False
    assert credential(connection) == Credential("", b"CERT", b"KEY")


def test_another_context_can_be_named(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_bytes(b"CA")
    (tmp_path / "token").write_text("from-file\n")
    path = write(tmp_path / "config", FULL)
    two = load_kubeconfig(path, CLOCK, context="two")
    assert (two.server, two.insecure, two.namespace) == ("https://two", True, "default")
    assert isinstance(two.credentials, CredentialFiles)
    assert credential(two).authorization == "Bearer from-file"
    assert credential(load_kubeconfig(path, CLOCK, context="nobody")) == Credential()
    basic = credential(load_kubeconfig(path, CLOCK, context="basic"))
    assert basic.authorization == f"Basic {base64.b64encode(b'a:b').decode()}"


def test_an_exec_user_is_a_plugin_named_relative_to_the_file(tmp_path: Path) -> None:
    path = write(
        tmp_path / "config",
        """
        current-context: x
        contexts: [{name: x, context: {cluster: c, user: u}}]
        clusters: [{name: c, cluster: {server: "https://h"}}]
        users:
        - name: u
          user:
            exec:
              apiVersion: client.authentication.k8s.io/v1
              command: ./plugin
              args: [a, 1]
              env: [{name: K, value: V}]
              provideClusterInfo: true
        """,
    )
    source = load_kubeconfig(path, CLOCK).credentials
    assert isinstance(source, ExecPlugin)
    assert source._plugin.command == str(tmp_path / "plugin")
    assert source._plugin.arguments == ("a", "1")
    assert source._plugin.environment == {"K": "V"}
    assert source._plugin.cluster == {"server": "https://h"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "not a kubeconfig"),
        ("{", "not a kubeconfig"),
        ("a: [", "not a kubeconfig"),
        ("kind: Config", "current-context is not set"),
        ("current-context: x", "no context named 'x'"),
        (FULL.replace("current-context: one", "current-context: broken"), "no cluster named"),
        (
            "current-context: x\n"
            "contexts: [{name: x, context: {cluster: c}}]\n"
            "clusters: [{name: c, cluster: {}}]",
            "has no server URL",
        ),
        (FULL, "certificate-authority: ca.pem: No such file"),
        (
            FULL.replace("current-context: one", "current-context: two").replace(
                "insecure-skip-tls-verify: true",
                "insecure-skip-tls-verify: true, certificate-authority-data: QQ==",
            ),
            "both a certificate-authority and insecure",
        ),
        (of_user("{client-certificate-data: QQ==}"), "requires client-key"),
        (of_user("{client-key-data: QQ==}"), "requires client-certificate"),
        (of_user("{client-certificate-data: '*'}"), "client-key"),
        (of_user("{client-certificate: gone.pem, client-key: gone.key}"), "gone.pem: No such"),
        (of_user("{auth-provider: {name: gcp}}"), "auth-provider, which is not supported"),
        (of_user("{token: t, as: admin}"), "has as, which is not supported"),
        (of_user("{exec: plugin}"), "requires a command and an apiVersion"),
        (of_user("{exec: {command: x}}"), "requires a command and an apiVersion"),
        (
            of_user("{exec: {command: x, apiVersion: client.authentication.k8s.io/v1, env: [a]}}"),
            "each env of an exec user",
        ),
        (of_user("{}", 'proxy-url: "socks5://h:1"'), "unsupported proxy socks5://h:1"),
    ],
)
def test_invalid_config_is_rejected_with_message(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidKubeconfig, match=message) as raised:
        load_kubeconfig(write(tmp_path / "config", text), CLOCK)
    assert str(tmp_path) in str(raised.value)


def test_certificates_in_files_are_read_again(tmp_path: Path) -> None:
    for name in ("cert", "key"):
        (tmp_path / name).write_text(f"{name} one")
    text = of_user("{client-certificate: cert, client-key: key, token: t}")
    connection = load_kubeconfig(write(tmp_path / "config", text), CLOCK)
    first = credential(connection)
    assert first == Credential("Bearer t", b"cert one", b"key one")
    (tmp_path / "cert").write_text("cert two")
    renewed = asyncio.run(connection.credentials.renewed(first))
    assert renewed == Credential("Bearer t", b"cert two", b"key one")


def test_kubeconfig_lookup_order(tmp_path: Path) -> None:
    def config(place: str) -> Path:
        (tmp_path / place).parent.mkdir(exist_ok=True)
        return write(tmp_path / place, of_user("{}").replace("https://h", f"https://{place[:1]}"))

    account = tmp_path / "account"
    account.mkdir()
    (account / "token").write_text("t")
    (account / "ca.crt").write_text("CA")
    named, variable, _ = config("named"), config("variable"), config(".kube/config")
    environment = {"HOME": str(tmp_path)}

    def server(**kubeconfig: str) -> str:
        return find_connection(
            CLOCK, environment=environment, service_account=account, **kubeconfig
        ).server

    assert server() == "https://."
    environment["KUBERNETES_SERVICE_HOST"] = "10.0.0.1"
    assert server() == "https://10.0.0.1:443"
    environment["KUBECONFIG"] = f"{tmp_path}/nope:{variable}"
    assert server() == "https://v"
    assert server(kubeconfig=str(named)) == "https://n"
    environment.clear()
    environment["HOME"] = str(account)
    with pytest.raises(InvalidKubeconfig, match="no kubeconfig specified"):
        server()


def test_the_environment_names_a_proxy_where_the_file_does_not(tmp_path: Path) -> None:
    def proxy(text: str) -> str:
        path = write(tmp_path / "config", text)
        return load_kubeconfig(path, CLOCK, environment={"HTTPS_PROXY": "http://env:1"}).proxy

    assert proxy(of_user("{}")) == "http://env:1"
    assert proxy(of_user("{}", "proxy-url: http://file:1")) == "http://file:1"


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidKubeconfig, match="No such file"):
        load_kubeconfig(tmp_path / "nope", CLOCK)


def test_a_pod_in_a_cluster_uses_its_service_account(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t1")
    (tmp_path / "ca.crt").write_bytes(b"CA")
    (tmp_path / "namespace").write_text("team\n")
    environment = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
    connection = in_cluster(CLOCK, environment, tmp_path)
    assert connection.server == "https://[fd00::1]:6443"
    assert connection.namespace == "team"
    assert credential(connection).authorization == "Bearer t1"
    with pytest.raises(InvalidKubeconfig, match="not running in a cluster"):
        in_cluster(CLOCK, {}, tmp_path)


def test_the_written_file_is_a_kubeconfig_for_others_too(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    write_kubeconfig(path, server="https://h:1", authority=b"PEM", token="t")
    config = json.loads(path.read_bytes())
    assert (config["apiVersion"], config["kind"]) == ("v1", "Config")
    assert (
        base64.b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"]) == b"PEM"
    )


def test_a_kubeconfig_that_is_right_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"

    def write(server: str) -> int:
        write_kubeconfig(path, server=server, authority=b"PEM", token="secret")
        return path.stat().st_ino

    first = write("https://a")
    assert write("https://a") == first
    # A file that is readable by others, a link, and another text are replaced.
    path.chmod(0o644)
    assert write("https://a") != first
    assert path.stat().st_mode & 0o777 == 0o600
    moved = path.rename(tmp_path / "moved")
    path.symlink_to(moved)
    write("https://a")
    assert not path.is_symlink()
    write("https://b")
    assert b"https://b" in path.read_bytes()
