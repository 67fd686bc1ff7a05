"""Encryption of Secrets at rest (AES-GCM), applied when writing to and reading from disk.

The key file has one key per line, `NAME:BASE64` of 32 bytes. The first key encrypts; all keys
decrypt. `none` before the first key stores Secrets unencrypted again. At start-up, Secrets stored
in another form than the first line specifies are rewritten, so that a retired key can be removed
before the next start.
"""

import base64
import binascii
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

import apsw

from onejob.objects.meta import Key
from onejob.store.base import CannotOpen
from onejob.store.checksums import checksum, is_intact
from onejob.store.migrations import transaction

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

ENCRYPTED_RESOURCE: Final = "secrets"
#: Unambiguous, because an unencrypted document begins with a brace.
_PREFIX: Final = b"onejob:aesgcm:v1:"
_KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12
_IN_THE_CLEAR: Final = "none"


class BadKeyFile(CannotOpen):
    """Invalid key file. The message is one line that names the problem."""


class MissingKey(CannotOpen):
    """A Secret was encrypted with a key that is not in the key file."""


class Cipher:
    """Encrypts and decrypts Secrets.

    Without keys it encrypts nothing, and raises MissingKey for an encrypted Secret.
    """

    def __init__(self, keys: "dict[str, AESGCM] | None" = None, first: str = "") -> None:
        """`first` is the name of the key that encrypts; "" for none."""
        self._keys = keys or {}
        self._first = first

    def encrypt(self, key: Key, value: bytes) -> bytes:
        """Return the value to store; only Secrets are encrypted, and only if there is a key."""
        if not self._first or key.resource != ENCRYPTED_RESOURCE:
            return value
        nonce = os.urandom(_NONCE_BYTES)
        sealed = self._keys[self._first].encrypt(nonce, value, _bound_to(key))
        return b"%b%b:%b" % (_PREFIX, self._first.encode(), nonce + sealed)

    def decrypt(self, key: Key, value: bytes) -> bytes:
        """Return the plain value. Raises MissingKey.

        A value that was tampered with is returned as it is; reading it then fails as damaged.
        """
        if not is_encrypted(value):
            return value
        name, _, sealed = value[len(_PREFIX) :].partition(b":")
        cipher = self._keys.get(name.decode("utf-8", "replace"))
        if cipher is None:
            raise MissingKey(
                f"Secret {key.namespace}/{key.name} is encrypted with the unknown key "
                f"{name.decode('utf-8', 'replace')!r}: add it to the file of "
                "--encryption-key-file"
            )
        from cryptography.exceptions import InvalidTag

        try:
            return cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], _bound_to(key))
        except InvalidTag:
            return value

    def is_current(self, value: bytes) -> bool:
        """Return whether a value is stored in the form that `encrypt` would produce now."""
        if not self._first:
            return not value.startswith(_PREFIX)
        return value.startswith(b"%b%b:" % (_PREFIX, self._first.encode()))


class NoCipher(Cipher):
    """Cipher that passes stored values through, for tools that have no key and need none."""

    def decrypt(self, key: Key, value: bytes) -> bytes:
        return value

    def is_current(self, value: bytes) -> bool:
        return True


def is_encrypted(value: bytes) -> bool:
    return value.startswith(_PREFIX)


def _bound_to(key: Key) -> bytes:
    """Return the associated data that binds a value to its object.

    Prevents replacing the bytes of one Secret with the bytes of another.
    """
    return f"{key.resource}/{key.namespace}/{key.name}".encode()


def read_key_file(path: Path) -> Cipher:
    """Read a key file. Raises BadKeyFile."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    keys: dict[str, AESGCM] = {}
    first: str | None = None
    for number, line in enumerate(_lines(path), start=1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        if text == _IN_THE_CLEAR and first is None:
            first = ""
            continue
        name, key = _read_key(text)
        if not name or len(key) != _KEY_BYTES:
            raise BadKeyFile(
                f"{path}, line {number}: expected NAME:BASE64 of {_KEY_BYTES} random bytes, "
                f"from `head -c {_KEY_BYTES} /dev/urandom | base64`"
            )
        if name in keys:
            raise BadKeyFile(f"{path}, line {number}: duplicate key {name!r}")
        keys[name] = AESGCM(key)
        first = name if first is None else first
    if not keys:
        raise BadKeyFile(f"{path} contains no keys")
    return Cipher(keys, first or "")


def holds_key(text: bytes) -> bool:
    """Return whether `text` is, or may be, the content of a key file."""
    lines = text.decode("utf-8", "replace").splitlines()
    return any(name and len(key) == _KEY_BYTES for name, key in map(_read_key, lines))


def _read_key(line: str) -> tuple[str, bytes]:
    """Return a line's name and key; the key is b"" if the line is not a key."""
    name, _, encoded = line.strip().partition(":")
    try:
        return name, base64.b64decode(encoded.strip(), validate=True)
    except (binascii.Error, ValueError):
        return name, b""


def _lines(path: Path) -> list[str]:
    """Return the lines of the key file. Raises BadKeyFile."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno())
            if stat.S_IMODE(mode.st_mode) & 0o077:
                raise BadKeyFile(f"{path} is readable by other users: run chmod 600 {path}")
            return file.read().decode("utf-8", "replace").splitlines()
    except OSError as error:
        raise BadKeyFile(f"cannot read {path}: {error.strerror}") from None


def reencrypt_secrets(connection: apsw.Connection, cipher: Cipher) -> int:
    """Re-encrypt all Secrets that are not stored in the current form, and return their number.

    Raises MissingKey.
    """
    rows = connection.execute(
        "SELECT revision, namespace, name, value, checksum FROM log"
        " WHERE resource = ? AND value IS NOT NULL",
        (ENCRYPTED_RESOURCE,),
    )
    changed: list[tuple[bytes, int, int]] = []
    for revision, namespace, name, value, expected in rows:
        assert isinstance(revision, int)
        if not is_intact(revision, ENCRYPTED_RESOURCE, value, expected):
            # Left unchanged: with a fresh checksum it would pass as intact.
            continue
        assert isinstance(value, bytes)
        if not cipher.is_current(value):
            key = Key(ENCRYPTED_RESOURCE, str(namespace), str(name))
            plain = cipher.decrypt(key, value)
            if plain is not value or not is_encrypted(value):
                stored = cipher.encrypt(key, plain)
                changed.append((stored, checksum(revision, key.resource, stored), revision))
    if changed:
        connection.pragma("secure_delete", 1)
        try:
            with transaction(connection):
                connection.executemany(
                    "UPDATE log SET value = ?, checksum = ? WHERE revision = ?", changed
                )
        finally:
            connection.pragma("secure_delete", 0)
    return len(changed)
