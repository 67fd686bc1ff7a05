"""Config file of the targets: one-line errors for each mistake."""

import os
from pathlib import Path
from typing import Any

import pytest

from onejob.controllers.notify.config import BadNotifyConfig, load_config
from tests.notify.support import a_config

HOOK = {"webhook": {"url": "https://hooks.example.com/services/T0/secret"}}
MAIL = {"email": {"server": "localhost", "from": "onejob@example.com", "to": ["a@example.com"]}}


def test_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("whsec_" + "QUFB" * 8 + "\n")
    config = a_config(
        tmp_path,
        {"name": "chat", "webhook": {**HOOK["webhook"], "secretFile": str(tmp_path / "key")}},
        {"name": "pager", "on": ["failed"], "command": {"argv": ["/bin/sh", "-c", "cat"]}},
        {"name": "mail", **MAIL},
    )
    chat, pager, mail = config.targets
    assert (chat.kind, chat.place) == ("webhook", "hooks.example.com")
    assert "finished" not in chat.events
    assert (pager.kind, sorted(pager.events)) == ("command", ["failed"])
    assert mail.email is not None
    assert mail.email.address == ("localhost", 587)


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ({"name": "a"}, "requires exactly one of webhook, command and email"),
        ({"name": "a", **HOOK, **MAIL}, "requires exactly one"),
        ({"name": "A b", **HOOK}, "has a name that annotations cannot contain"),
        ({"name": "a", "webhook": {"url": "file:///etc/passwd"}}, "not an http:// or https:// URL"),
        ({"name": "a", "webhook": {"url": "http://x:99999/"}}, "not an http:// or https:// URL"),
        ({"name": "a", "webhook": {"url": "http://u:p@x/"}}, "use headers"),
        ({"name": "a", "webhook": {"url": "http://x/", "headers": {"A": "b\r\nC: d"}}}, "header"),
        ({"name": "a", "webhook": {"url": "http://x/", "secretFile": "/none"}}, "cannot read"),
        ({"name": "a", "webhook": {"url": "http://x/", "secret": "k"}}, "unknown field `secret`"),
        ({"name": "a", "command": {"argv": ["page"]}}, "without an absolute path"),
        ({"name": "a", "command": {"argv": ["/no/such"]}}, "cannot be run"),
        ({"name": "a", "command": {"argv": []}}, "length >= 1"),
        ({"name": "a", "on": ["sometimes"], **HOOK}, "Invalid enum value 'sometimes'"),
        ({"name": "a", "on": [], **HOOK}, "has no events"),
        ({"name": "a", "email": {**MAIL["email"], "to": ["nobody"]}}, "mail address"),
        ({"name": "a", "email": {**MAIL["email"], "username": "u"}}, "both username and"),
        ({"name": "a", "email": {**MAIL["email"], "server": "x:port"}}, "not HOST:PORT"),
    ],
)
def test_invalid_config_is_rejected_with_message(
    target: dict[str, Any], text: str, tmp_path: Path
) -> None:
    with pytest.raises(BadNotifyConfig) as raised:
        a_config(tmp_path, target)
    assert text in str(raised.value)
    assert "\n" not in str(raised.value)


def test_names_are_unique_and_keys_long(tmp_path: Path) -> None:
    with pytest.raises(BadNotifyConfig, match="same name as another target"):
        a_config(tmp_path, {"name": "a", **HOOK}, {"name": "a", **MAIL})
    key = tmp_path / "key"
    for content, text in (("short", "at least 16 bytes"), ("whsec_%%%", "invalid base64")):
        key.write_text(content)
        hook = {"url": "http://x/", "secretFile": str(key)}
        with pytest.raises(BadNotifyConfig, match=text):
            a_config(tmp_path, {"name": "a", "webhook": hook})


def test_a_file_that_others_may_write_is_not_used(tmp_path: Path) -> None:
    a_config(tmp_path, {"name": "a", **HOOK})
    path = tmp_path / "notify.yaml"
    path.chmod(0o666)
    with pytest.raises(BadNotifyConfig, match="chmod go-w"):
        load_config(path)
    path.chmod(0o600)
    if os.geteuid() == 0:
        os.chown(path, 12345, 12345)
        with pytest.raises(BadNotifyConfig, match="belongs to user 12345"):
            load_config(path)
    other = tmp_path / "fifo"
    os.mkfifo(other)
    with pytest.raises(BadNotifyConfig, match="not a regular file"):
        load_config(other)


def test_the_key_on_needs_no_quotes(tmp_path: Path) -> None:
    """YAML 1.1 reads it as a boolean."""
    path = tmp_path / "notify.yaml"
    path.write_text("targets: [{name: a, on: [failed], command: {argv: [/bin/sh]}}]")
    assert [sorted(target.events) for target in load_config(path).targets] == [["failed"]]


def test_a_link_of_the_administrators_is_followed(tmp_path: Path) -> None:
    a_config(tmp_path, {"name": "a", **HOOK})
    (tmp_path / "link.yaml").symlink_to("notify.yaml")
    assert [target.name for target in load_config(tmp_path / "link.yaml").targets] == ["a"]


@pytest.mark.parametrize("content", [b"", b"[1, 2", b"targets: 1", b"\xff\xfe", b"- a", b"null"])
def test_no_content_leads_to_anything_but_a_line(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "notify.yaml"
    path.write_bytes(content)
    with pytest.raises(BadNotifyConfig) as raised:
        load_config(path)
    assert len(str(raised.value).splitlines()) == 1
    with pytest.raises(BadNotifyConfig, match="No such file"):
        load_config(tmp_path / "absent")
