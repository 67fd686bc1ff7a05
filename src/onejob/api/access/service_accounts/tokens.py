"""Service-account tokens: issued for an account and an optional object, valid while both exist."""

import hashlib
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from onejob.api.access.authentication import (
    API_AUDIENCE,
    AUTHENTICATED_GROUP,
    Credentials,
    RejectedToken,
)
from onejob.api.access.service_accounts.jwt import (
    InvalidToken,
    looks_like_token,
    sign,
    unverified_claims,
    verified_claims,
)
from onejob.api.access.service_accounts.signing_keys import SigningKeys
from onejob.clock import Clock
from onejob.objects.meta import NODES, PODS, Key
from onejob.wire.requests import User

#: Issuer URL; kubeadm uses the API server's name, which is also its audience.
ISSUER: Final = API_AUDIENCE
ACCOUNTS: Final = "serviceaccounts"
SECRETS: Final = "secrets"

_CLAIMS: Final = "kubernetes.io"
_EXTRA: Final = "authentication.kubernetes.io"
#: Tolerance for clock skew, and for deleted objects that still need to shut down cleanly.
_LEEWAY: Final = timedelta(minutes=1)
#: Number of tokens whose verified claims are cached.
_REMEMBERED: Final = 1024


class Named(msgspec.Struct, frozen=True):
    name: str
    uid: str


class _Kubernetes(msgspec.Struct, frozen=True):
    namespace: str
    serviceaccount: Named
    pod: Named | None = None
    secret: Named | None = None
    node: Named | None = None


class _Claims(msgspec.Struct, frozen=True):
    iss: str
    sub: str
    exp: int
    nbf: int
    kubernetes: _Kubernetes = msgspec.field(name=_CLAIMS)
    aud: tuple[str, ...] = ()
    jti: str = ""


class Known(msgspec.Struct, frozen=True):
    """Properties of a stored object that token validity depends on."""

    uid: str
    deleted_at: datetime | None = None
    service_account: str = ""
    node: str = ""


#: Lookup of an object by key; returns None if it does not exist.
Find = Callable[[Key], Known | None]


@dataclass(frozen=True, slots=True)
class Bound:
    """Object that a token is bound to; the token becomes invalid when it is deleted."""

    resource: str
    object: Named
    #: Node of a bound Pod, recorded as a claim.
    node: Named | None = None


class Issuer:
    """Issuer of signed tokens."""

    def __init__(self, keys: SigningKeys, clock: Clock) -> None:
        self._keys = keys
        self._clock = clock

    def issue(
        self,
        namespace: str,
        account: Named,
        audiences: Sequence[str],
        life: timedelta,
        bound: Bound | None = None,
    ) -> tuple[str, datetime]:
        """Return a signed token and its expiry time."""
        now = int(self._clock.now().timestamp())
        end = now + int(life.total_seconds())
        about: dict[str, Any] = {"namespace": namespace, "serviceaccount": account}
        if bound is not None:
            about[bound.resource.removesuffix("s")] = bound.object
            if bound.node is not None:
                about["node"] = bound.node
        claims = {
            "aud": list(audiences),
            "exp": end,
            "iat": now,
            "iss": ISSUER,
            "jti": str(uuid.uuid4()),
            _CLAIMS: about,
            "nbf": now,
            "sub": user_name(namespace, account.name),
        }
        return sign(claims, self._keys.signing), datetime.fromtimestamp(end, UTC)


class ServiceAccountAuthenticator:
    """Authenticator for tokens signed by this server, valid while their bound objects exist."""

    def __init__(self, keys: SigningKeys, find: Find, clock: Clock) -> None:
        self._keys = keys
        self._find = find
        self._clock = clock
        self._verified: dict[bytes, _Claims] = {}
        self._version = 0

    def authenticate(self, credentials: Credentials) -> User | None:
        """Return the service account's user, or None if the token was not issued here.

        Raises RejectedToken.
        """
        token = credentials.bearer_token
        if not looks_like_token(token):
            return None
        try:
            claims = self._claims(token)
        except InvalidToken as error:
            raise RejectedToken(str(error)) from None
        if claims is None:
            return None
        self._require_time(claims)
        if not set(claims.aud) & set(credentials.audiences):
            raise RejectedToken("the token is for another audience")
        self._require_objects(claims.kubernetes)
        return _user(claims)

    def _claims(self, token: str) -> _Claims | None:
        """Return the verified claims, or None for another issuer.

        Cached, because verification dominates the cost. Raises InvalidToken.
        """
        keys = self._keys.verifying
        if self._version != self._keys.version:
            self._version = self._keys.version
            self._verified.clear()
        mark = hashlib.sha256(token.encode("utf-8", "replace")).digest()
        claims = self._verified.get(mark)
        if claims is None:
            if unverified_claims(token).get("iss") != ISSUER:
                return None
            try:
                claims = msgspec.convert(verified_claims(token, keys), _Claims)
            except msgspec.ValidationError:
                raise InvalidToken("the token lacks claims of a service account") from None
            if len(self._verified) >= _REMEMBERED:
                self._verified.pop(next(iter(self._verified)))
            self._verified[mark] = claims
        return claims

    def _require_time(self, claims: _Claims) -> None:
        now = self._clock.now().timestamp()
        if now - _LEEWAY.total_seconds() > claims.exp:
            raise RejectedToken("service account token has expired")
        if now + _LEEWAY.total_seconds() < claims.nbf:
            raise RejectedToken("service account token is not valid yet")

    def _require_objects(self, about: _Kubernetes) -> None:
        account = Key(ACCOUNTS, about.namespace, about.serviceaccount.name)
        self._require_exists(account, about.serviceaccount, "service account")
        if about.secret is not None:
            secret = Key(SECRETS, about.namespace, about.secret.name)
            self._require_exists(secret, about.secret, "secret")
        if about.pod is not None:
            self._require_exists(Key(PODS, about.namespace, about.pod.name), about.pod, "pod")
        elif about.node is not None:
            # For a Pod-bound token, the node claim is informative and not checked.
            self._require_exists(Key(NODES, "", about.node.name), about.node, "node")

    def _require_exists(self, key: Key, named: Named, what: str) -> None:
        """Raise RejectedToken unless the object still exists with the UID in the token."""
        found = self._find(key)
        if found is None or found.uid != named.uid:
            raise RejectedToken(f"the {what} of the token is gone")
        if found.deleted_at is not None and found.deleted_at < self._clock.now() - _LEEWAY:
            raise RejectedToken(f"the {what} of the token has been deleted")


def user_name(namespace: str, account: str) -> str:
    return f"system:serviceaccount:{namespace}:{account}"


def _user(claims: _Claims) -> User:
    """Return the user that verified claims identify."""
    about = claims.kubernetes
    groups = (
        "system:serviceaccounts",
        f"system:serviceaccounts:{about.namespace}",
        AUTHENTICATED_GROUP,
    )
    name = user_name(about.namespace, about.serviceaccount.name)
    return User(name, about.serviceaccount.uid, groups, _user_extra(claims))


def _user_extra(claims: _Claims) -> Mapping[str, tuple[str, ...]]:
    """Return the `extra` attributes of the User that a token authenticates."""
    about = claims.kubernetes

    def named(what: str, one: Named | None) -> Iterable[tuple[str, str]]:
        if one is not None:
            yield f"{what}-name", one.name
            yield f"{what}-uid", one.uid

    values = [("credential-id", f"JTI={claims.jti}")] if claims.jti else []
    values += [*named("node", about.node), *named("pod", about.pod)]
    return {f"{_EXTRA}/{name}": (value,) for name, value in values}
