"""Users with their own bearer tokens, in one private file of the data dir.

Only a hash of each token is stored, so that the file or a copy of it does not allow a login.
`onejob user` changes the file and the server rereads it when it changes: a revoked user is rejected
from the next request on.
"""

import hashlib
import logging
import secrets
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from onejob.api.access.authentication import API_AUDIENCE, Credentials, all_groups
from onejob.api.access.private_files import WatchedFile, locked, write_private
from onejob.clock import Clock
from onejob.planning.rbac.policy import MASTERS
from onejob.trusted_paths import NotTrusted, read_own_file
from onejob.wire.requests import User

log = logging.getLogger(__name__)

#: File name in the server's data dir.
USERS_FILE: Final = "users.json"
#: Prefix that makes a leaked token recognisable to people and secret scanners.
_PREFIX: Final = "onejob_"
#: Prefix of names that Kubernetes reserves.
_RESERVED: Final = "system:"


class BadUsers(ValueError):
    """The users file, or a change requested for it, is invalid. The text is one line."""


class UserExists(BadUsers):
    """A user of that name exists."""


class UserRecord(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    name: str
    #: SHA-256 of the token, in hex. Tokens are long and random, so no slow hash is needed.
    token_hash: str
    created_at: datetime
    groups: tuple[str, ...] = ()
    expires_at: datetime | None = None

    def expired(self, now: datetime) -> bool:
        """Return whether the token has expired."""
        return self.expires_at is not None and self.expires_at <= now


class _File(msgspec.Struct):
    users: tuple[UserRecord, ...] = ()


def read_users(path: Path) -> tuple[UserRecord, ...]:
    """Return the users in the file; none if it does not exist. Raises BadUsers and NotTrusted."""
    try:
        return msgspec.json.decode(read_own_file(path), type=_File).users
    except FileNotFoundError:
        return ()
    except msgspec.DecodeError as error:
        raise BadUsers(f"{path}: not a list of users: {error}") from None


def add_user(
    path: Path, name: str, groups: tuple[str, ...], now: datetime, expires_at: datetime | None
) -> str:
    """Add a user and return the token, which is stored nowhere.

    Raises UserExists for an existing name, BadUsers for an invalid name or group.
    """
    if not name or name.startswith(_RESERVED) or any(not text.isprintable() for text in name):
        raise BadUsers(f"{name!r} cannot be the name of a user")
    for group in groups:
        if not group or (group.startswith(_RESERVED) and group != MASTERS):
            raise BadUsers(f"{group!r} cannot be given to a user: it is Kubernetes' own")
    token = _PREFIX + secrets.token_urlsafe(32)
    with locked(path):
        users = read_users(path)
        if any(user.name == name for user in users):
            raise UserExists(f"user {name} already exists")
        user = UserRecord(name, _hash(token), now, groups, expires_at)
        _write(path, (*users, user))
    return token


def revoke_user(path: Path, name: str) -> None:
    """Remove a user. Raises BadUsers if it does not exist."""
    with locked(path):
        users = read_users(path)
        kept = tuple(user for user in users if user.name != name)
        if len(kept) == len(users):
            raise BadUsers(f"user {name} not found")
        _write(path, kept)


class UserTokenAuthenticator:
    """Authenticator for user tokens.

    Rereads the file when it changes; an unreadable file rejects all users.
    """

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._file = WatchedFile(path)
        self._users: dict[str, UserRecord] = {}

    def authenticate(self, credentials: Credentials) -> User | None:
        if API_AUDIENCE not in credentials.audiences:
            return None
        if not credentials.bearer_token.startswith(_PREFIX):
            return None
        self._reload_if_changed()
        # Lookup by hash: timing reveals nothing about near matches.
        found = self._users.get(_hash(credentials.bearer_token))
        if found is None or found.expired(self._clock.now()):
            return None
        return User(found.name, groups=all_groups(found.name, found.groups))

    def _reload_if_changed(self) -> None:
        """Reload the users if the file has changed; drop them all if it is invalid."""
        if not self._file.changed():
            return
        self._users = {}
        try:
            self._users = {user.token_hash: user for user in read_users(self._path)}
        except (BadUsers, NotTrusted, OSError) as error:
            log.error("users cannot log in: %s", error)


def _hash(token: str) -> str:
    """Return the SHA-256 digest of a token in hexadecimal."""
    return hashlib.sha256(token.encode()).hexdigest()


def _write(path: Path, users: tuple[UserRecord, ...]) -> None:
    """Replace the file of users, readable only by its owner."""
    write_private(path, msgspec.json.format(msgspec.json.encode(_File(users)), indent=1))
