"""Mail channel, with the standard library's SMTP client."""

import asyncio
import smtplib
import ssl
from email.message import EmailMessage
from email.utils import format_datetime, parseaddr

import msgspec

from onejob.controllers.notify.config import BadNotifyConfig, Email, read_line
from onejob.controllers.notify.delivery import NotDelivered
from onejob.planning.notify.messages import Message, encode_message
from onejob.worker_threads import start_daemon


class MailChannel:
    """Channel to a mail server."""

    def __init__(self, email: Email) -> None:
        """Raises BadNotifyConfig."""
        self._email = email
        self._password = read_line(email.password_file) if email.password_file else ""
        self._tls = _tls(email) if email.tls != "none" else None

    async def send(self, message: Message) -> None:
        mail = compose(message, self._email)
        loop = asyncio.get_running_loop()
        done: asyncio.Future[str] = loop.create_future()

        def work() -> None:
            problem = self._deliver(mail)
            if not loop.is_closed():
                loop.call_soon_threadsafe(_finish, done, problem)

        try:
            # A daemon thread: a delivery that hangs must not keep the server from stopping.
            start_daemon(work, "notify-mail")
        except OSError as error:
            raise NotDelivered(f"{error.strerror}") from error
        seconds = self._email.timeout_seconds
        try:
            # smtplib limits each read; a server may send a line now and then for ever.
            async with asyncio.timeout(seconds):
                problem = await done
        except TimeoutError:
            raise NotDelivered(f"the mail server took longer than {seconds:g} s") from None
        if problem:
            raise NotDelivered(problem)

    async def close(self) -> None:
        return None

    def _deliver(self, mail: EmailMessage) -> str:
        """Send a mail. Return the error, or "" on success."""
        try:
            with self._connect() as server:
                if self._email.tls == "starttls":
                    server.starttls(context=self._tls)
                if self._email.username:
                    server.login(self._email.username, self._password)
                server.send_message(mail)
        except (smtplib.SMTPException, OSError) as error:
            return f"{type(error).__name__}: {error}"
        return ""

    def _connect(self) -> smtplib.SMTP:
        """Return a new connection to the mail server. Blocks. Raises OSError, SMTPException."""
        host, port = self._email.address
        seconds = self._email.timeout_seconds
        if self._email.tls == "tls":
            return smtplib.SMTP_SSL(host, port, timeout=seconds, context=self._tls)
        return smtplib.SMTP(host, port, timeout=seconds)


def compose(message: Message, email: Email) -> EmailMessage:
    """Return the mail of a message; its Message-ID is the same for each attempt."""
    mail = EmailMessage()
    mail["From"] = email.sender
    mail["To"] = ", ".join(email.to)
    mail["Subject"] = _subject(message)
    mail["Date"] = format_datetime(message.at)
    # The same for each attempt, so that mail servers and mail programs drop duplicates.
    _, _, host = parseaddr(email.sender)[1].rpartition("@")
    mail["Message-ID"] = f"<{message.id}@{host or 'onejob.invalid'}>"
    mail["Auto-Submitted"] = "auto-generated"
    details = msgspec.json.format(encode_message(message), indent=2).decode()
    mail.set_content(f"{message.text}\n\n{details}\n")
    return mail


def _subject(message: Message) -> str:
    """Return the subject of a message."""
    if not message.name:
        return "[onejob] test"
    return f"[onejob] {message.event}: {message.namespace}/{message.name}"


def _tls(email: Email) -> ssl.SSLContext:
    """Return the TLS context for the mail server. Raises BadNotifyConfig."""
    try:
        return ssl.create_default_context(cafile=email.ca_file or None)
    except (OSError, ssl.SSLError) as error:
        raise BadNotifyConfig(f"{email.ca_file} contains no certificates: {error}") from None


def _finish(done: "asyncio.Future[str]", problem: str) -> None:
    """Resolve the future, unless it is done."""
    if not done.done():
        done.set_result(problem)
