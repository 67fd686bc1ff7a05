"""HTTPS client for API servers, on the standard library's `http.client`: nothing starts faster."""

import http.client
import select
import socket
import ssl
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import msgspec

from onejob import __version__
from onejob.cli.errors import CommandError
from onejob.cli.sources.base import ApiRequest, ApiResponse
from onejob.client.credentials import Credential
from onejob.client.kubeconfig import Connection, InvalidKubeconfig, load_kubeconfig
from onejob.clock import SystemClock
from onejob.wire.errors import ApiError, from_status

if TYPE_CHECKING:
    from onejob.cli.kept_runs import RunEnd

_CONNECT_SECONDS: Final = 10.0
_ANSWER_SECONDS: Final = 60.0
_PIECE_BYTES: Final = 65536


class HttpApi:
    def __init__(self, connection: Connection, start_hint: str) -> None:
        self._connection = connection
        self._start_hint = start_hint
        self._url = urlsplit(connection.server)
        self._open: http.client.HTTPConnection | None = None
        self._credential: Credential | None = None
        self.url = connection.server.rstrip("/")
        self.title = f"the server at {connection.server}"
        self.namespace = connection.namespace
        self.ended: RunEnd | None = None
        self.on_this_machine = _is_loopback(self._host)

    def send(self, ask: ApiRequest) -> ApiResponse:
        answer = self._request(ask, _ANSWER_SECONDS)
        body = answer.read()
        warnings = tuple(_warning_text(text) for text in answer.headers.get_all("Warning") or ())
        return ApiResponse(answer.status, body, warnings)

    def stream(self, ask: ApiRequest) -> Iterator[bytes]:
        answer = self._request(ask, None)
        # The stream takes the connection over; the next request opens another one.
        connection, self._open = self._open, None
        try:
            while piece := answer.read1(_PIECE_BYTES):
                yield piece
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable_error(error) from None
        finally:
            answer.close()
            if connection is not None:
                connection.close()

    def fresh(self) -> "HttpApi":
        """Return a client with a connection of its own, for another thread."""
        return HttpApi(self._connection, self._start_hint)

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    def answers(self) -> bool:
        """Return whether the server's port accepts connections, within a second."""
        try:
            socket.create_connection((self._host, self._port), 1.0).close()
        except OSError:
            return False
        return True

    @property
    def _host(self) -> str:
        return self._url.hostname or ""

    @property
    def _port(self) -> int:
        return self._url.port or (443 if self._url.scheme == "https" else 80)

    def _request(self, ask: ApiRequest, timeout: float | None) -> http.client.HTTPResponse:
        headers = {
            "Accept": ask.accept,
            "User-Agent": f"onejob/{__version__}",
            "Content-Type": ask.content_type,
        }
        if self._credential is None:
            self._credential = _finish(self._connection.credentials.current())
        if self._credential.authorization:
            headers["Authorization"] = self._credential.authorization
        target = self._url.path.rstrip("/") + ask.target
        if self._open is not None and _is_closed(self._open):
            self.close()
        try:
            connection = self._open or self._connect()
            self._open = connection
            connection.request(ask.method, target, ask.body or None, headers)
            if connection.sock is not None:
                connection.sock.settimeout(timeout)
            answer = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise self._unreachable_error(error) from None
        if answer.status >= 400:
            raise _error(answer)
        return answer

    def _connect(self) -> http.client.HTTPConnection:
        if self._url.scheme == "http":
            return http.client.HTTPConnection(self._host, self._port, timeout=_CONNECT_SECONDS)
        context = ssl.create_default_context(cadata=self._connection.authority.decode() or None)
        if self._connection.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        credential = self._credential
        if credential is not None and credential.certificate:
            _load_certificate(context, credential)
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=_CONNECT_SECONDS, context=context
        )

    def _unreachable_error(self, error: Exception) -> CommandError:
        if isinstance(error, ssl.SSLCertVerificationError):
            return CommandError(
                f"{self._connection.server} has a certificate that this kubeconfig does not "
                f"trust: {error.verify_message}"
            )
        if isinstance(error, ConnectionRefusedError):
            return CommandError(
                f"cannot connect to {self._connection.server}: connection refused", self._start_hint
            )
        if isinstance(error, http.client.IncompleteRead | http.client.RemoteDisconnected):
            return CommandError(f"{self.title} closed the connection", self._start_hint)
        text = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return CommandError(f"{self._connection.server}: {text}", self._start_hint)


def _is_closed(connection: http.client.HTTPConnection) -> bool:
    """Return whether the server has closed an idle connection, as servers do after a while.

    Between requests nothing else makes it readable: a request on it would fail.
    """
    if connection.sock is None:
        return True
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return bool(poll.poll(0))


def open_http_api(kubeconfig: Path, start_hint: str) -> HttpApi:
    try:
        connection = load_kubeconfig(kubeconfig, SystemClock())
    except InvalidKubeconfig as error:
        raise CommandError(str(error)) from None
    return HttpApi(connection, start_hint)


def _finish(coroutine: Coroutine[Any, Any, Credential]) -> Credential:
    """Run a credential coroutine that never suspends, without starting an event loop.

    Most credentials are available at once. Raises CommandError for an exec plugin, which suspends.
    """
    try:
        coroutine.send(None)
    except StopIteration as done:
        credential: Credential = done.value
        return credential
    coroutine.close()
    raise CommandError(
        "this kubeconfig uses a credential plugin, which is not supported", "use kubectl"
    )


def _is_loopback(host: str) -> bool:
    import ipaddress

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _load_certificate(context: ssl.SSLContext, credential: Credential) -> None:
    """Load a client certificate through a temporary file, the only source `ssl` accepts."""
    import tempfile

    with tempfile.NamedTemporaryFile() as file:
        file.write(credential.certificate + b"\n" + credential.key)
        file.flush()
        context.load_cert_chain(file.name)


def _error(answer: http.client.HTTPResponse) -> ApiError:
    body = answer.read()
    try:
        return from_status(msgspec.json.decode(body, type=dict[str, Any]))
    except msgspec.DecodeError:
        error = ApiError(f"the server responded with {answer.status} {answer.reason}")
        error.code = answer.status
        return error


def _warning_text(header: str) -> str:
    """Return the unescaped text of a Warning header, `299 - "text"`."""
    _, _, quoted = header.partition('"')
    return quoted.rstrip('"').replace('\\"', '"').replace("\\\\", "\\")
