"""JSON Web Tokens in compact serialization, signed with ECDSA P-256 (ES256 only).

A library would support every algorithm that a token can name, and attacks exploit that choice
(algorithm confusion). Here the key determines the algorithm, and the header only has to agree.
"""

import base64
import binascii
import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import (
        EllipticCurvePrivateKey,
        EllipticCurvePublicKey,
    )

ALGORITHM: Final = "ES256"
#: Maximum length; longer tokens are rejected unparsed. Tokens of this server take about a kilobyte.
_MAX_TOKEN_LENGTH: Final = 16 * 1024
_NUMBER_BYTES: Final = 32


class InvalidToken(Exception):
    """The token is malformed or its signature is invalid.

    The text contains nothing from the token.
    """


class _Header(msgspec.Struct):
    """Header fields that verification reads."""

    alg: str
    kid: str = ""


_read_header = msgspec.json.Decoder(_Header).decode
_read_claims = msgspec.json.Decoder(dict[str, Any]).decode


def sign(claims: Mapping[str, Any], key: "EllipticCurvePrivateKey") -> str:
    """Return a token of the claims, signed by `key`; its header names the key's id."""
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec, utils

    header = {"alg": ALGORITHM, "kid": key_id(key.public_key())}
    text = f"{_encode(msgspec.json.encode(header))}.{_encode(msgspec.json.encode(claims))}"
    r, s = utils.decode_dss_signature(key.sign(text.encode(), ec.ECDSA(hashes.SHA256())))
    return f"{text}.{_encode(_fixed_bytes(r) + _fixed_bytes(s))}"


def looks_like_token(text: str) -> bool:
    """Return whether the text has three segments, as `unverified_claims` requires. Nothing is
    decoded."""
    return text.count(".") == 2


def unverified_claims(token: str) -> dict[str, Any]:
    """Return the claims without verifying the signature, to find the responsible authenticator.

    `token` must have three segments (`looks_like_token`). Raises InvalidToken if the claims cannot
    be decoded.
    """
    claims: dict[str, Any] = _decode_part(token.split(".")[1], _read_claims)
    return claims


def verified_claims(token: str, keys: Mapping[str, "EllipticCurvePublicKey"]) -> dict[str, Any]:
    """Return the claims if one of `keys` signed them; `keys` is keyed by key id. Raises
    InvalidToken.

    Neither expiry nor audience is checked.
    """
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec, utils

    if len(token) > _MAX_TOKEN_LENGTH:
        raise InvalidToken("the token is too long")
    signed, _, signature = token.rpartition(".")
    header: _Header = _decode_part(signed.partition(".")[0], _read_header)
    if header.alg != ALGORITHM:
        raise InvalidToken("the token is not signed with a supported algorithm")
    key = keys.get(header.kid)
    numbers = _decode(signature)
    if key is None or len(numbers) != 2 * _NUMBER_BYTES:
        raise InvalidToken("the token is not signed by a known key")
    r, s = (int.from_bytes(part) for part in (numbers[:_NUMBER_BYTES], numbers[_NUMBER_BYTES:]))
    try:
        der = utils.encode_dss_signature(r, s)
        key.verify(der, signed.encode(), ec.ECDSA(hashes.SHA256()))
    except (InvalidSignature, UnicodeEncodeError):
        raise InvalidToken("the token is not signed by a known key") from None
    return unverified_claims(token)


def key_id(key: "EllipticCurvePublicKey") -> str:
    """Return the key id in Kubernetes' format: a hash of the public key."""
    from cryptography.hazmat.primitives import serialization

    der = key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return _encode(hashlib.sha256(der).digest())


def public_key_document(key: "EllipticCurvePublicKey") -> dict[str, str]:
    """Return the key as a JSON Web Key."""
    numbers = key.public_numbers()
    return {
        "use": "sig",
        "kty": "EC",
        "kid": key_id(key),
        "crv": "P-256",
        "alg": ALGORITHM,
        "x": _encode(_fixed_bytes(numbers.x)),
        "y": _encode(_fixed_bytes(numbers.y)),
    }


def _decode_part(text: str, read: Any) -> Any:
    """Decode one segment of a token. Raises InvalidToken."""
    try:
        return read(_decode(text))
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise InvalidToken("the token cannot be read") from None


def _encode(data: bytes) -> str:
    """Return unpadded base64url."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    """Return the bytes of canonical, unpadded base64url. Raises InvalidToken."""
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise InvalidToken("the token cannot be read") from None
    if _encode(data) != text:
        # Reject non-canonical encodings, so that each issued token has exactly one text form.
        raise InvalidToken("the token cannot be read")
    return data


def _fixed_bytes(value: int) -> bytes:
    """Return a coordinate or a part of a signature as 32 bytes, big-endian."""
    return value.to_bytes(_NUMBER_BYTES)
