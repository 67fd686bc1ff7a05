"""Notification configuration file: the only place for URLs, commands and mail servers.

Annotations contain only the name of a target, so users who may create Jobs can neither make the
server run a command nor make it send requests to an address of their choice.
"""

import base64
import binascii
import os
from pathlib import Path
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct, field

from onejob.api.decoding.bodies import decode_yaml
from onejob.planning.notify.annotations import EVENTS, USUAL_EVENTS
from onejob.trusted_paths import NotTrusted, read_trusted_file
from onejob.wire.errors import ApiError
from onejob.wire.names import label_errors

_MIN_SECRET_LENGTH: Final = 16
#: Prefix of base64-encoded keys in Standard Webhooks.
_SECRET_PREFIX: Final = "whsec_"
_TLS_PORTS: Final = {"starttls": 587, "tls": 465, "none": 25}

EventName = Literal["failed", "finished", "late", "recovered"]
Seconds = Annotated[float, Meta(gt=0, le=300)]


class BadNotifyConfig(Exception):
    """Invalid configuration. The message is one line with the file and the necessary change."""


class Webhook(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    url: str
    #: File with the key that requests are signed with.
    secret_file: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    #: File with trusted certificates, instead of the system's.
    ca_file: str = ""
    timeout_seconds: Seconds = 15.0


class Command(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    argv: Annotated[tuple[str, ...], Meta(min_length=1)]
    timeout_seconds: Seconds = 30.0


_EMAIL_NAMES: Final = {
    "sender": "from",
    "password_file": "passwordFile",
    "ca_file": "caFile",
    "timeout_seconds": "timeoutSeconds",
}


class Email(Struct, frozen=True, forbid_unknown_fields=True, rename=_EMAIL_NAMES):
    #: HOST or HOST:PORT.
    server: str
    sender: str
    to: Annotated[tuple[str, ...], Meta(min_length=1)]
    tls: Literal["starttls", "tls", "none"] = "starttls"
    username: str = ""
    password_file: str = ""
    ca_file: str = ""
    timeout_seconds: Seconds = 30.0

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the mail server."""
        url = urlsplit(f"//{self.server}")
        return url.hostname or "", url.port or _TLS_PORTS[self.tls]


class Target(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    on: tuple[EventName, ...] | None = None
    webhook: Webhook | None = None
    command: Command | None = None
    email: Email | None = None

    @property
    def events(self) -> frozenset[str]:
        """Events that the target receives."""
        return USUAL_EVENTS if self.on is None else frozenset(self.on)

    @property
    def kind(self) -> str:
        """Kind of the target: webhook, command or email."""
        return next(kind for kind in ("webhook", "command", "email") if getattr(self, kind))

    @property
    def place(self) -> str:
        """Destination of the messages, for display.

        URLs of webhooks often contain a secret: only the host is shown.
        """
        if self.webhook is not None:
            return urlsplit(self.webhook.url).hostname or ""
        if self.command is not None:
            return self.command.argv[0]
        assert self.email is not None
        return ", ".join(self.email.to)


class NotifyConfig(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    targets: tuple[Target, ...]
    #: Seconds after which an undelivered message is dropped.
    give_up_after_seconds: Annotated[int, Meta(ge=60, le=30 * 86400)] = 86400
    #: Upper bound on queued messages.
    queue_limit: Annotated[int, Meta(ge=1, le=1_000_000)] = 10_000

    @property
    def by_name(self) -> dict[str, Target]:
        return {target.name: target for target in self.targets}

    @property
    def secret_files(self) -> list[str]:
        """Names of the files that contain keys and passwords."""
        names = [target.webhook.secret_file for target in self.targets if target.webhook]
        names += [target.email.password_file for target in self.targets if target.email]
        return [name for name in names if name]


def load_config(path: Path) -> NotifyConfig:
    """Read and validate the configuration, including the secrets and certificates it refers to.

    Raises BadNotifyConfig.
    """
    document = _document(path)
    try:
        config = msgspec.convert(document, NotifyConfig)
    except msgspec.ValidationError as error:
        raise BadNotifyConfig(f"{path} is invalid: {error}") from None
    names = [target.name for target in config.targets]
    for number, target in enumerate(config.targets):
        problem = _problem(target)
        if names.count(target.name) > 1:
            problem = "has the same name as another target"
        if problem:
            raise BadNotifyConfig(
                f"{path} is invalid: targets[{number}] ({target.name!r}) {problem}"
            )
    return config


def read_secret(path: str) -> bytes:
    """Return the key of a webhook. Raises BadNotifyConfig."""
    text = read_line(path)
    secret = text.encode()
    if text.startswith(_SECRET_PREFIX):
        try:
            secret = base64.b64decode(text.removeprefix(_SECRET_PREFIX), validate=True)
        except binascii.Error:
            raise BadNotifyConfig(f"{path}: invalid base64 after whsec_") from None
    if len(secret) < _MIN_SECRET_LENGTH:
        raise BadNotifyConfig(
            f"{path}: a key requires at least {_MIN_SECRET_LENGTH} bytes: openssl rand -base64 32"
        )
    return secret


def read_line(path: str) -> str:
    """Return the content of a one-line file. Raises BadNotifyConfig."""
    try:
        return _read(Path(path)).decode().strip()
    except UnicodeDecodeError:
        raise BadNotifyConfig(f"{path} is not UTF-8 text") from None


def _document(path: Path) -> object:
    """Return the decoded file. Raises BadNotifyConfig."""
    try:
        return _with_key_on(decode_yaml(_read(path)).document)
    except ApiError as error:
        text = " ".join(error.message.split())
        raise BadNotifyConfig(f"{path} is not valid YAML: {text}") from None


def _with_key_on(document: object) -> object:
    """Restore the key `on`: unquoted it is a boolean in YAML 1.1, and arrives as `true`."""
    targets = document.get("targets") if isinstance(document, dict) else None
    for target in targets if isinstance(targets, list) else ():
        if isinstance(target, dict) and "true" in target and "on" not in target:
            target["on"] = target.pop("true")
    return document


def _read(path: Path) -> bytes:
    """Read a file that only trusted users can write.

    Its writers can make the server run commands. Raises BadNotifyConfig.
    """
    try:
        return read_trusted_file(path)
    except NotTrusted as error:
        raise BadNotifyConfig(str(error)) from None
    except OSError as error:
        raise BadNotifyConfig(f"cannot read {path}: {error.strerror}") from None


def _problem(target: Target) -> str:
    """Return a description of the target's error; "" if it is valid. Raises BadNotifyConfig."""
    errors = label_errors(target.name)
    if errors:
        return f"has a name that annotations cannot contain: {errors[0]}"
    given = [one for one in (target.webhook, target.command, target.email) if one is not None]
    if len(given) != 1:
        return "requires exactly one of webhook, command and email"
    if target.on is not None and not target.on:
        return f"has no events: list some of {', '.join(EVENTS)} in on"
    if target.webhook is not None:
        return _webhook_problem(target.webhook)
    if target.command is not None:
        return _command_problem(target.command)
    assert target.email is not None
    return _email_problem(target.email)


def _webhook_problem(webhook: Webhook) -> str:
    """Return what is wrong with a webhook; "" if nothing is."""
    try:
        url = urlsplit(webhook.url)
        usable = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        usable = False
    if not usable or not webhook.url.isascii() or not webhook.url.isprintable():
        return "has a webhook.url that is not an http:// or https:// URL"
    if url.username is not None:
        return "has a user in its webhook.url: use headers"
    for name, value in webhook.headers.items():
        if not (name.isascii() and name.replace("-", "").isalnum()) or not value.isprintable():
            return f"has an invalid header: {name!r}"
    if webhook.secret_file:
        read_secret(webhook.secret_file)
    if webhook.ca_file:
        _read(Path(webhook.ca_file))
    return ""


def _command_problem(command: Command) -> str:
    program = command.argv[0]
    if not os.path.isabs(program):
        return f"has a command without an absolute path: {program!r}"
    if not (os.path.isfile(program) and os.access(program, os.X_OK)):
        return f"has a command that cannot be run: {program}"
    return ""


def _email_problem(email: Email) -> str:
    """Return what is wrong with a mail target; "" if nothing is."""
    try:
        host, _ = email.address
    except ValueError:
        host = ""
    if not host:
        return f"has an email.server that is not HOST:PORT: {email.server!r}"
    for address in (email.sender, *email.to):
        if "@" not in address or not address.isprintable():
            return f"has an invalid mail address: {address!r}"
    if bool(email.username) != bool(email.password_file):
        return "requires both username and passwordFile, or neither"
    if email.password_file:
        read_line(email.password_file)
    if email.ca_file:
        _read(Path(email.ca_file))
    return ""
