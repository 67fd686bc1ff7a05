"""Signing keys of service-account tokens, in one private file of the data dir.

The first key signs. The keys after it were rotated out and still verify tokens until the last one
that they signed has expired. `onejob rotate token-key` changes the file; the server rereads it when
it changes.
"""

import logging
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from onejob.api.access.private_files import WatchedFile, locked, write_private
from onejob.api.access.service_accounts.jwt import key_id, public_key_document
from onejob.trusted_paths import NotTrusted, read_own_file

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import (
        EllipticCurvePrivateKey,
        EllipticCurvePublicKey,
    )

log = logging.getLogger(__name__)

#: File name in the certificate folder.
KEYS_FILE: Final = "service-account-keys.json"
#: Maximum lifetime of a token, and thus the time for which a rotated key is kept.
MAX_TOKEN_LIFETIME: Final = timedelta(days=365)


class BadKeys(ValueError):
    """The key file is invalid; the text is one line with a remedy."""


class KeyRecord(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    #: PKCS #8, in PEM.
    key: str
    created_at: datetime
    #: Time of rotation; None for the key that signs.
    replaced_at: datetime | None = None


class _File(msgspec.Struct):
    keys: tuple[KeyRecord, ...] = ()


def ensure_keys(path: Path, now: datetime) -> None:
    """Create the first key if the file has none. Raises BadKeys and NotTrusted."""
    with locked(path):
        if not _read(path):
            _write(path, (KeyRecord(_new_key(), now),))


def rotate_keys(path: Path, now: datetime) -> None:
    """Create a new signing key; keep the old ones for verification while needed.

    Raises BadKeys and NotTrusted.
    """
    with locked(path):
        before = tuple(
            kept if kept.replaced_at else msgspec.structs.replace(kept, replaced_at=now)
            for kept in _read(path)
        )
        needed = (
            kept
            for kept in before
            if kept.replaced_at is not None and now - kept.replaced_at < MAX_TOKEN_LIFETIME
        )
        _write(path, (KeyRecord(_new_key(), now), *needed))


class SigningKeys:
    """Keys loaded from the file.

    Rereads it when it changes; if it is unreadable, the last loaded keys stay in use.
    """

    def __init__(self, path: Path) -> None:
        """Load the keys. Raises BadKeys and NotTrusted."""
        self._path = path
        self._file = WatchedFile(path)
        self._file.changed()
        #: Incremented with every change of the keys.
        self.version = 0
        self._set_keys(_load(path))

    @property
    def signing(self) -> "EllipticCurvePrivateKey":
        """Return the newest key, which signs new tokens."""
        self._reload_if_changed()
        return self._signing

    @property
    def verifying(self) -> dict[str, "EllipticCurvePublicKey"]:
        """Return all valid public keys by key id."""
        self._reload_if_changed()
        return self._verifying

    def documents(self) -> list[dict[str, str]]:
        """Return the public keys as JSON Web Keys."""
        return [public_key_document(key) for key in self.verifying.values()]

    def _set_keys(self, keys: tuple["EllipticCurvePrivateKey", ...]) -> None:
        self._signing = keys[0]
        self._verifying = {key_id(key.public_key()): key.public_key() for key in keys}
        self.version += 1

    def _reload_if_changed(self) -> None:
        """Reload the keys if the file has changed; keep the loaded ones if it is invalid."""
        if not self._file.changed():
            return
        try:
            self._set_keys(_load(self._path))
        except (BadKeys, NotTrusted, OSError) as error:
            log.error("the keys of service-account tokens stay as they were: %s", error)


def _read(path: Path) -> tuple[KeyRecord, ...]:
    """Return the stored keys; none if the file does not exist. Raises BadKeys, NotTrusted,
    OSError."""
    try:
        return msgspec.json.decode(read_own_file(path), type=_File).keys
    except FileNotFoundError:
        return ()
    except msgspec.DecodeError as error:
        raise BadKeys(f"{path}: not a list of keys ({error}); {_WAY_OUT}") from None


_WAY_OUT: Final = "restore it, or remove it to have a new key made (all tokens then end)"


def _write(path: Path, keys: tuple[KeyRecord, ...]) -> None:
    """Replace the file of keys, readable only by its owner."""
    write_private(path, msgspec.json.format(msgspec.json.encode(_File(keys)), indent=1))


def _load(path: Path) -> tuple["EllipticCurvePrivateKey", ...]:
    """Return the keys in the file, decoded. Raises BadKeys if one is not an ECDSA P-256 key."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

    keys = []
    for kept in _read(path):
        try:
            key = serialization.load_pem_private_key(kept.key.encode(), None)
        except (ValueError, TypeError) as error:
            raise BadKeys(f"{path}: cannot read a key ({error}); {_WAY_OUT}") from None
        if not isinstance(key, EllipticCurvePrivateKey) or key.curve.name != "secp256r1":
            raise BadKeys(f"{path}: a key is not of the curve P-256; {_WAY_OUT}")
        keys.append(key)
    if not keys:
        raise BadKeys(f"{path} contains no key; {_WAY_OUT}")
    return tuple(keys)


def _new_key() -> str:
    from onejob.api.access.certificates import key_pem, new_key

    return key_pem(new_key()).decode()
