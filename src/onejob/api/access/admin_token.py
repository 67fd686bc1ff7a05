"""Admin token: bearer token of the server's owner, in a private file of the data dir."""

import hmac
import logging
import secrets
from pathlib import Path
from typing import Final

from onejob.api.access.authentication import ADMIN, API_AUDIENCE, Credentials
from onejob.api.access.private_files import WatchedFile, write_private
from onejob.trusted_paths import NotTrusted, read_own_file
from onejob.wire.requests import User

log = logging.getLogger(__name__)

#: File name in the server's data dir.
TOKEN_FILE: Final = "admin.token"


def admin_token(path: Path) -> str:
    """Return the token in the file; create it on first use.

    Only the owner may read the file. Raises NotTrusted if another user could have written it.
    """
    try:
        if token := _read(path):
            return token
    except FileNotFoundError:
        pass
    return rotate_admin_token(path)


def rotate_admin_token(path: Path) -> str:
    """Replace the token and return the new one.

    The old one is rejected from the next request on.
    """
    token = secrets.token_urlsafe(32)
    write_private(path, f"{token}\n".encode())
    return token


class AdminTokenAuthenticator:
    """Authenticator for the admin token.

    Rereads the file when it changes; an unreadable file rejects all tokens.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = WatchedFile(path)
        self._token = b""

    def authenticate(self, credentials: Credentials) -> User | None:
        if API_AUDIENCE not in credentials.audiences or not credentials.bearer_token:
            return None
        if self._file.changed():
            self._read_again()
        given = credentials.bearer_token.encode("utf-8", "replace")
        known = bool(self._token) and hmac.compare_digest(self._token, given)
        return ADMIN if known else None

    def _read_again(self) -> None:
        self._token = b""
        try:
            self._token = _read(self._path).encode()
        except (NotTrusted, OSError) as error:
            log.error("the admin cannot log in: %s", error)


def _read(path: Path) -> str:
    """Return the token in the file. Raises NotTrusted, OSError."""
    return read_own_file(path).decode("ascii", "replace").strip()
