"""Users with tokens of their own, kept in one private file of the data dir.

Only a hash of each token is kept, so that whoever reads the file, or a copy of it, cannot log in.
The file is changed by `onejob user` and read by the server whenever it has changed: a user who is
revoked is out with the next request.
"""

import hashlib
import logging
import secrets
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from onejob.api.access.authentication import API_AUDIENCE, Credentials, all_groups
from onejob.api.access.private_files import FollowedFile, locked, write_private
from onejob.clock import Clock
from onejob.planning.rbac.policy import MASTERS
from onejob.trusted_paths import NotTrusted, read_own_file
from onejob.wire.requests import User

log = logging.getLogger(__name__)

#: In the data dir of a server.
USERS_FILE: Final = "users.json"
#: Marks what is ours, for people and programs that look for secrets in the wrong place.
_PREFIX: Final = "onejob_"
#: Names that mean something to Kubernetes.
_RESERVED: Final = "system:"


class BadUsers(ValueError):
    """The file, or what somebody wants to put into it, is no good; the text is one line."""


class UserExists(BadUsers):
    pass


class KeptUser(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    name: str
    #: SHA-256 of the token, in hex. Tokens are random and long, so they need no slow hash.
    token_hash: str
    created_at: datetime
    groups: tuple[str, ...] = ()
    expires_at: datetime | None = None

    def expired(self, now: datetime) -> bool:
        return self.expires_at is not None and self.expires_at <= now


class _File(msgspec.Struct):
    users: tuple[KeptUser, ...] = ()


def read_users(path: Path) -> tuple[KeptUser, ...]:
    """Nobody if there is no file. Raises BadUsers and NotTrusted."""
    try:
        return msgspec.json.decode(read_own_file(path), type=_File).users
    except FileNotFoundError:
        return ()
    except msgspec.DecodeError as error:
        raise BadUsers(f"{path}: not a list of users: {error}") from None


def add_user(
    path: Path, name: str, groups: tuple[str, ...], now: datetime, expires_at: datetime | None
) -> str:
    """Returns the token, which is nowhere else. Raises BadUsers if there is such a user."""
    if not name or name.startswith(_RESERVED) or any(not text.isprintable() for text in name):
        raise BadUsers(f"{name!r} cannot be the name of a user")
    for group in groups:
        if not group or (group.startswith(_RESERVED) and group != MASTERS):
            raise BadUsers(f"{group!r} cannot be given to a user: it is Kubernetes' own")
    token = _PREFIX + secrets.token_urlsafe(32)
    with locked(path):
        users = read_users(path)
        if any(user.name == name for user in users):
            raise UserExists(f"there is a user {name} already")
        user = KeptUser(name, _hash(token), now, groups, expires_at)
        _write(path, (*users, user))
    return token


def revoke_user(path: Path, name: str) -> None:
    """Raises BadUsers if there is no such user."""
    with locked(path):
        users = read_users(path)
        kept = tuple(user for user in users if user.name != name)
        if len(kept) == len(users):
            raise BadUsers(f"there is no user {name}")
        _write(path, kept)


class UserTokenAuthenticator:
    """Follows the file. A file that cannot be read lets nobody in."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._file = FollowedFile(path)
        self._users: dict[str, KeptUser] = {}

    def authenticate(self, credentials: Credentials) -> User | None:
        if API_AUDIENCE not in credentials.audiences:
            return None
        if not credentials.bearer_token.startswith(_PREFIX):
            return None
        self._follow()
        # Looked up by a hash: the time it takes tells nothing about tokens that are close.
        found = self._users.get(_hash(credentials.bearer_token))
        if found is None or found.expired(self._clock.now()):
            return None
        return User(found.name, groups=all_groups(found.name, found.groups))

    def _follow(self) -> None:
        if not self._file.changed():
            return
        self._users = {}
        try:
            self._users = {user.token_hash: user for user in read_users(self._path)}
        except (BadUsers, NotTrusted, OSError) as error:
            log.error("users cannot log in: %s", error)


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _write(path: Path, users: tuple[KeptUser, ...]) -> None:
    write_private(path, msgspec.json.format(msgspec.json.encode(_File(users)), indent=1))
