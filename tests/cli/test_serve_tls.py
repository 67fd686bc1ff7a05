"""`onejob serve` with the user's own certificates."""

import errno
import json
import os
import pty
import signal
import ssl
import sys
import urllib.request
from base64 import b64decode
from pathlib import Path

import pytest
from cryptography import x509

from onejob.cli.main import run_command
from tests.cli.command_line import CommandLine
from tests.cli.envtest_support import authority, serving

API_ONLY = ("serve", "--listen", "127.0.0.1:0", "--controllers=", "--no-node")


def test_the_given_certificate_is_shown_and_its_key_goes_nowhere(
    onejob: CommandLine, tmp_path: Path
) -> None:
    issuer = authority()
    pair = serving(issuer, x509.DNSName("localhost"))
    both = tmp_path / "both.pem"
    both.write_bytes(pair.certificate_pem + pair.key_pem() + issuer.certificate_pem)
    server = onejob.start(
        *API_ONLY, "--tls-cert-file", str(both), "--tls-private-key-file", str(both)
    )
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        url = line.split()[-1].replace("127.0.0.1", "localhost")
        kubeconfig = json.loads((onejob.data_dir / "kubeconfig").read_text())
        trusted = b64decode(kubeconfig["clusters"][0]["cluster"]["certificate-authority-data"])
        assert trusted == pair.certificate_pem + issuer.certificate_pem
        context = ssl.create_default_context(cadata=issuer.certificate_pem.decode())
        with urllib.request.urlopen(f"{url}/healthz", context=context, timeout=30) as answer:
            assert answer.read() == b"ok"
    finally:
        server.terminate()
        server.communicate()


def test_files_that_cannot_be_used_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pair, other = authority(), authority()
    files = {
        "good.crt": pair.certificate_pem,
        "good.key": pair.key_pem(),
        "other.key": other.key_pem(),
        "locked.key": pair.key_pem(password=b"secret"),
        "empty": b"",
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)

    def refused(**options: str) -> str:
        words = [f"--{name.replace('_', '-')}={tmp_path / file}" for name, file in options.items()]
        before = signal.getsignal(signal.SIGTERM)
        try:
            code = run_command([*API_ONLY, "--data-dir", str(tmp_path / "state"), *words])
        finally:
            signal.signal(signal.SIGTERM, before)
        errors = capsys.readouterr().err
        assert code == 2
        assert errors.count("\n") == 1
        return errors

    assert "--tls-private-key-file is missing" in refused(tls_cert_file="good.crt")
    assert "--tls-cert-file is missing" in refused(tls_private_key_file="good.key")
    for key in ("other.key", "locked.key", "empty"):
        errors = refused(tls_cert_file="good.crt", tls_private_key_file=key)
        assert f"good.crt and {tmp_path}/{key} are no certificate" in errors
    errors = refused(tls_cert_file="absent", tls_private_key_file="good.key")
    assert f"cannot read {tmp_path}/absent: No such file or directory" in errors
    assert "empty holds no certificates in PEM" in refused(client_ca_file="empty")


def test_a_locked_key_is_not_asked_for_on_the_terminal(onejob: CommandLine, tmp_path: Path) -> None:
    pair = authority()
    (tmp_path / "a.crt").write_bytes(pair.certificate_pem)
    (tmp_path / "a.key").write_bytes(pair.key_pem(password=b"secret"))
    words = ("--tls-cert-file", "a.crt", "--tls-private-key-file", "a.key")
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(tmp_path)
        os.execve(sys.executable, onejob.arguments(*API_ONLY, *words), onejob.environment)
    shown = b""
    try:
        while b"pass phrase" not in shown and (read := os.read(terminal, 4096)):
            shown += read
    except OSError as error:
        # Linux reports this when the other end of a terminal was closed.
        if error.errno != errno.EIO:
            raise
    finally:
        os.close(terminal)
        _, status = os.waitpid(child, 0)
    assert b"are no certificate and its unencrypted key" in shown
    assert os.waitstatus_to_exitcode(status) == 2
