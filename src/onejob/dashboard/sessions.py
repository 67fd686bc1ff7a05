"""Sign-in sessions: one-time codes are exchanged for sessions, and sessions for credentials.

`onejob ui` requests a code with the credentials of its kubeconfig; the page that it opens exchanges
the code for a session. A session has two secrets. One is in a cookie that no script can read; the
other is kept by the page and sent in a header. Browsers send cookies to every port of a host, and
on behalf of other sites; the header is only sent by our own page.

A session holds the credentials it was opened with, which are checked anew in every request: it ends
with the token or user behind it. Sessions are kept in memory only.
"""

import hashlib
import secrets
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Final, TypeVar

from onejob.api.access.authentication import Credentials, fairness_principal
from onejob.clock import Clock

#: A request with this header is authenticated by its session alone, without other credentials.
SESSION_HEADER: Final = b"x-onejob-session"
#: Subprotocol that carries the same key: browsers send no headers of a page's with a WebSocket.
SESSION_PROTOCOL: Final = b"session.onejob.dev."
CODE_SECONDS: Final = 60.0
IDLE_SECONDS: Final = 3600.0
MAX_SESSION_SECONDS: Final = 12 * 3600.0
#: Limits beyond which the oldest are evicted: first the user's own, so that no user can sign out
#: the others.
_MAX_CODES: Final = 100
_MAX_CODES_PER_USER: Final = 10
_MAX_SESSIONS: Final = 1000
_MAX_SESSIONS_PER_USER: Final = 50


@dataclass(frozen=True, slots=True)
class Opened:
    """The two secrets of a new session."""

    cookie: str
    key: str


@dataclass(frozen=True, slots=True)
class _Code:
    """Sign-in code that has not been used."""

    user: str
    credentials: Credentials
    expires_at: float


@dataclass(slots=True)
class _Session:
    """Open session."""

    user: str
    credentials: Credentials
    opened_at: float
    used_at: float


_Held = TypeVar("_Held", _Code, _Session)


class Sessions:
    """Sign-in codes and sessions, in memory only."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        #: By the hash of the code, so that lookups take constant time with respect to the secret.
        self._codes: dict[bytes, _Code] = {}
        self._sessions: dict[bytes, _Session] = {}

    def new_code(self, user: str, credentials: Credentials, seconds: float = CODE_SECONDS) -> str:
        """Return a new code, valid once and for `seconds`; the oldest ones make room."""
        code = secrets.token_urlsafe(32)
        self._drop_expired()
        _make_room(self._codes, user, _MAX_CODES_PER_USER, _MAX_CODES)
        expires_at = self._clock.monotonic() + seconds
        self._codes[_hash(code)] = _Code(user, credentials, expires_at)
        return code

    def user_of(self, code: str) -> str:
        """Return the user that a code signs in, without using it up; "" if it is invalid."""
        self._drop_expired()
        found = self._codes.get(_hash(code))
        return "" if found is None else found.user

    def open(self, code: str) -> Opened | None:
        """Exchange a code for a session; None if the code is unknown, used or expired."""
        self._drop_expired()
        found = self._codes.pop(_hash(code), None)
        if found is None:
            return None
        _make_room(self._sessions, found.user, _MAX_SESSIONS_PER_USER, _MAX_SESSIONS)
        opened = Opened(secrets.token_urlsafe(32), secrets.token_urlsafe(32))
        now = self._clock.monotonic()
        self._sessions[_hash(opened.cookie, opened.key)] = _Session(
            found.user, found.credentials, now, now
        )
        return opened

    def find(self, cookie: str, key: str) -> Credentials | None:
        """Return the credentials of a session and mark it as used; None if it does not exist or has
        expired."""
        session = self._sessions.get(_hash(cookie, key))
        now = self._clock.monotonic()
        if session is None or _expired(session, now):
            return None
        session.used_at = now
        return session.credentials

    def close(self, cookie: str, key: str) -> None:
        """End a session; an unknown one is ignored."""
        self._sessions.pop(_hash(cookie, key), None)

    def _drop_expired(self) -> None:
        now = self._clock.monotonic()
        for hashed, code in list(self._codes.items()):
            if now > code.expires_at:
                del self._codes[hashed]
        for secret, session in list(self._sessions.items()):
            if _expired(session, now):
                del self._sessions[secret]


def read_session_key(headers: Mapping[bytes, bytes]) -> str | None:
    """Return the key of the session that a request names; None if it names none."""
    key = headers.get(SESSION_HEADER)
    if key is None and SESSION_PROTOCOL in (offered := headers.get(b"sec-websocket-protocol", b"")):
        key = offered.partition(SESSION_PROTOCOL)[2].partition(b",")[0].strip()
    return None if key is None else key.decode("latin-1")


def cookie_name(headers: Mapping[bytes, bytes]) -> str:
    """Return the cookie name for this port.

    Cookies are not separated by port, so each server on a host needs its own name.
    """
    port = headers.get(b"host", b"").rpartition(b":")[2].decode("latin-1")
    return f"__Host-onejob-{port if port.isdigit() else '443'}"


def read_cookie(headers: Mapping[bytes, bytes]) -> str:
    wanted = cookie_name(headers)
    for item in headers.get(b"cookie", b"").decode("latin-1").split(";"):
        name, _, value = item.strip().partition("=")
        if name == wanted:
            return value
    return ""


def set_cookie(name: str, value: str, seconds: int) -> bytes:
    return (
        f"{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; Secure; SameSite=Strict"
    ).encode()


def _make_room(held: MutableMapping[bytes, _Held], user: str, most_each: int, most: int) -> None:
    """Evict entries to make room for one more of that user; `held` is ordered oldest first."""
    own = [
        hashed
        for hashed, one in held.items()
        if fairness_principal(one.user) == fairness_principal(user)
    ]
    for hashed in own[: max(0, len(own) - most_each + 1)]:
        del held[hashed]
    while len(held) >= most:
        del held[next(iter(held))]


def _expired(session: _Session, now: float) -> bool:
    """Return whether the session has been idle or open for too long."""
    return now - session.used_at > IDLE_SECONDS or now - session.opened_at > MAX_SESSION_SECONDS


def _hash(*secret: str) -> bytes:
    """Return the digest of secrets, under which they are kept."""
    return hashlib.sha256("\0".join(secret).encode("utf-8", "replace")).digest()
