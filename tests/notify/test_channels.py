"""Real delivery of messages: to an HTTP server, to a mail server, into a command."""

import asyncio
import base64
import hashlib
import hmac
import json
import socket
import ssl
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, LoginPassword

from onejob.api.access.certificates import ensure_certificates, server_names
from onejob.clock import SystemClock
from onejob.controllers.notify.channels import channel_to
from onejob.controllers.notify.config import Target
from onejob.controllers.notify.delivery import NotDelivered
from onejob.planning.notify.messages import Message
from onejob.virtual_time import NOON
from tests.notify.support import a_config, a_receiver

SECRET = b"0123456789abcdef0123"
HOSTILE = "<script>\nRCPT TO: evil \u202e ✓"


def a_message(**fields: Any) -> Message:
    about = {"namespace": "default", "name": "pi", "uid": "u1", **fields}
    return Message("m1", "failed", "ops", NOON, "job/pi in default failed", **about)


def send(target: Target, message: Message | None = None) -> None:
    async def deliver() -> None:
        channel = channel_to(target, SystemClock())
        try:
            await channel.send(message or a_message())
        finally:
            await channel.close()

    asyncio.run(deliver())


def a_webhook(folder: Path, url: str, **settings: Any) -> Target:
    hook = {"url": url, "timeoutSeconds": 60, **settings}
    return a_config(folder, {"name": "ops", "webhook": hook}).targets[0]


# --- webhooks -----------------------------------------------------------------------------


def test_a_webhook_gets_a_signed_request(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text(f"whsec_{base64.b64encode(SECRET).decode()}\n")
    with a_receiver() as receiver:
        target = a_webhook(
            tmp_path,
            f"{receiver.url}/hooks/1?team=a",
            secretFile=str(key),
            headers={"X-Team": "a"},
        )
        send(target, a_message(message=HOSTILE))
        got = receiver.received.get(timeout=30)
    headers = {name.lower(): value for name, value in got.headers.items()}
    assert got.path == "/hooks/1?team=a"
    assert (headers["webhook-id"], headers["x-team"]) == ("m1", "a")
    # Verified as by a receiver, by the text of the standard.
    signed = f"m1.{headers['webhook-timestamp']}.".encode() + got.body
    digest = base64.b64encode(hmac.new(SECRET, signed, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{digest}"
    body = json.loads(got.body)
    assert (body["type"], body["text"]) == ("job.failed", "job/pi in default failed")
    assert body["data"]["message"] == HOSTILE


def test_a_key_may_be_plain_text_and_is_optional(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(SECRET + b"\n")
    with a_receiver() as receiver:
        send(a_webhook(tmp_path, receiver.url, secretFile=str(tmp_path / "key")))
        assert "webhook-signature" in receiver.received.get(timeout=30).headers
        send(a_webhook(tmp_path, receiver.url))
        assert "webhook-signature" not in receiver.received.get(timeout=30).headers


@pytest.mark.parametrize("code", [500, 404, 302])
def test_notification_refused_by_webhook_is_not_delivered(code: int, tmp_path: Path) -> None:
    with a_receiver() as receiver:
        receiver.codes = [code]
        with pytest.raises(NotDelivered, match=f"responded with {code}"):
            send(a_webhook(tmp_path, receiver.url))


def test_a_slow_and_a_dead_webhook_are_not_waited_for(tmp_path: Path) -> None:
    with a_receiver() as receiver:
        receiver.answering.clear()
        with pytest.raises(NotDelivered):
            send(a_webhook(tmp_path, receiver.url, timeoutSeconds=0.1))
    with pytest.raises(NotDelivered):
        send(a_webhook(tmp_path, receiver.url))


# --- commands -----------------------------------------------------------------------------


def a_command(folder: Path, script: str, **settings: Any) -> Target:
    program = folder / "page"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(stat.S_IRWXU)
    command = {"argv": [str(program), "--now"], **settings}
    return a_config(folder, {"name": "ops", "command": command}).targets[0]


def test_a_command_reads_the_message_and_nothing_of_it_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_SECRET", "of the server")
    out = tmp_path / "out"
    target = a_command(tmp_path, f'echo "$@ $ONEJOB_EVENT $A_SECRET" > {out}; cat >> {out}')
    send(target, a_message(message="$(touch /tmp/x); `id`"))
    first, second = out.read_text().splitlines()
    assert first == "--now failed "
    assert json.loads(second)["message"] == "$(touch /tmp/x); `id`"


def test_a_command_that_fails_or_hangs(tmp_path: Path) -> None:
    with pytest.raises(NotDelivered, match="exited with code 3: no modem"):
        send(a_command(tmp_path, "cat > /dev/null; echo no modem >&2; exit 3"))
    with pytest.raises(NotDelivered, match="timed out"):
        send(a_command(tmp_path, "sleep 600 & wait", timeoutSeconds=0.2))
    target = a_command(tmp_path, "exit 0")
    (tmp_path / "page").unlink()
    with pytest.raises(NotDelivered, match=r"cannot run .*: No such file"):
        send(target)


# --- mail ---------------------------------------------------------------------------------


class _Mailbox:
    def __init__(self) -> None:
        self.mails: list[tuple[list[str], str]] = []
        self.users: list[bytes] = []

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        self.mails.append((envelope.rcpt_tos, envelope.content.decode()))
        return "250 OK"

    def authenticate(
        self, server: Any, session: Any, envelope: Any, mechanism: str, data: Any
    ) -> AuthResult:
        good = isinstance(data, LoginPassword) and data.password == b"letmein"
        if good:
            self.users.append(data.login)
        return AuthResult(success=good, handled=False)


@contextmanager
def a_mail_server(**options: Any) -> Iterator[tuple[_Mailbox, int]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mailbox = _Mailbox()
    controller = Controller(mailbox, hostname="127.0.0.1", port=port, **options)
    controller.start()
    try:
        yield mailbox, port
    finally:
        controller.stop()


def a_mail_target(folder: Path, port: int, **settings: Any) -> Target:
    email = {
        "server": f"127.0.0.1:{port}",
        "from": "Jobs <onejob@example.com>",
        "to": ["a@example.com", "b@example.com"],
        "tls": "none",
        "timeoutSeconds": 60,
        **settings,
    }
    return a_config(folder, {"name": "ops", "email": email}).targets[0]


def test_a_mail_is_delivered_to_everybody(tmp_path: Path) -> None:
    with a_mail_server() as (mailbox, port):
        send(a_mail_target(tmp_path, port), a_message(message=HOSTILE))
    [(recipients, content)] = mailbox.mails
    assert recipients == ["a@example.com", "b@example.com"]
    assert "Subject: [onejob] failed: default/pi" in content
    assert "Message-ID: <m1@example.com>" in content


def test_a_mail_server_that_wants_tls_and_a_password(tmp_path: Path) -> None:
    certificates = ensure_certificates(
        tmp_path / "pki", server_names("127.0.0.1"), SystemClock().now()
    )
    authority = tmp_path / "ca.crt"
    authority.write_bytes(certificates.authority_data)
    tls = certificates.server_context()
    tls.verify_mode = ssl.CERT_NONE
    password = tmp_path / "password"
    password.write_text("letmein\n")
    mailbox = _Mailbox()
    settings = {"username": "onejob", "passwordFile": str(password), "tls": "starttls"}
    settings["caFile"] = str(authority)
    options: dict[str, Any] = {"auth_required": True, "tls_context": tls}
    with a_mail_server(**options, authenticator=mailbox.authenticate) as (received, port):
        send(a_mail_target(tmp_path, port, **settings))
        password.write_text("wrong\n")
        with pytest.raises(NotDelivered, match="SMTPAuthenticationError"):
            send(a_mail_target(tmp_path, port, **settings))
        with pytest.raises(NotDelivered, match="CERTIFICATE_VERIFY_FAILED"):
            send(a_mail_target(tmp_path, port, **{**settings, "caFile": ""}))
    assert mailbox.users == [b"onejob"]
    assert len(received.mails) == 1


def test_a_mail_server_that_is_silent_or_without_tls(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(NotDelivered):
            send(a_mail_target(tmp_path, port, timeoutSeconds=0.2))
    with a_mail_server() as (_, port), pytest.raises(NotDelivered, match="STARTTLS"):
        send(a_mail_target(tmp_path, port, tls="starttls"))


def test_mail_time_limit_includes_all_replies(tmp_path: Path) -> None:
    """A server that sends a line now and then answers every read in time."""
    lines, limit = 0, 200
    stop = threading.Event()

    def drip(listening: socket.socket) -> None:
        nonlocal lines
        connection, _ = listening.accept()
        with connection, suppress(OSError):
            while lines < limit and not stop.wait(0.05):
                connection.sendall(b"220-wait\r\n")
                lines += 1

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=drip, args=(listening,))
        thread.start()
        try:
            with pytest.raises(NotDelivered):
                send(a_mail_target(tmp_path, listening.getsockname()[1], timeoutSeconds=0.2))
            assert lines < limit
        finally:
            stop.set()
            thread.join()


def test_no_text_of_a_message_becomes_a_header() -> None:
    from onejob.controllers.notify.config import Email
    from onejob.controllers.notify.mail import compose

    email = Email(server="x", sender="onejob@example.com", to=("a@example.com",))
    mail = compose(a_message(message="x\r\nBcc: evil@example.com\r\n\r\n.\r\n"), email)
    assert isinstance(mail, EmailMessage)
    assert mail["Bcc"] is None
    assert {name.lower() for name in mail} == {
        *("from", "to", "subject", "date", "message-id", "auto-submitted"),
        *("content-type", "content-transfer-encoding", "mime-version"),
    }
