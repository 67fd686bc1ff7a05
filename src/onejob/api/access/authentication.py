"""Who asks: bearer tokens and client certificates become Users."""

import hmac
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from msgspec import Struct

from onejob.clock import Clock
from onejob.wire.errors import BadRequest, Unauthorized
from onejob.wire.requests import User

AUTHENTICATED_GROUP: Final = "system:authenticated"
UNAUTHENTICATED_GROUP: Final = "system:unauthenticated"
ANONYMOUS: Final = User("system:anonymous", groups=(UNAUTHENTICATED_GROUP,))
ADMIN: Final = User("onejob-admin", groups=("system:masters", AUTHENTICATED_GROUP))
_SERVICE_ACCOUNT: Final = "system:serviceaccount:"
#: For whom tokens are that are meant for the API server, by the name that kubeadm gives it.
API_AUDIENCE: Final = "https://kubernetes.default.svc.cluster.local"
API_AUDIENCES: Final = (API_AUDIENCE,)


class UnusableToken(Exception):
    """A token of ours that is not, or no longer, good for this; the text says why."""


class Credentials(Struct, frozen=True):
    """What a request brings to prove who sends it."""

    bearer_token: str = ""
    #: The verified peer certificate's subject as (attribute, value) pairs.
    certificate_subject: Sequence[tuple[str, str]] = ()
    #: When the certificate expires, in seconds since 1970.
    certificate_ends: float = 0.0
    #: One of these must be whom a token is for.
    audiences: tuple[str, ...] = API_AUDIENCES


class Authenticator(Protocol):
    def authenticate(self, credentials: Credentials) -> User | None:
        """None means: these credentials are not known here. May raise UnusableToken."""


@dataclass(frozen=True, slots=True)
class TokenAuthenticator:
    """Fixed tokens, compared in constant time."""

    users: Mapping[str, User]

    def authenticate(self, credentials: Credentials) -> User | None:
        if API_AUDIENCE not in credentials.audiences:
            return None
        given = credentials.bearer_token.encode()
        found = None
        # Every token is compared, so the time taken tells nothing about which was close.
        for token, user in self.users.items():
            if hmac.compare_digest(token.encode(), given):
                found = user
        return found


class CertificateAuthenticator:
    """A certificate that TLS has verified: common name is the user, organisations the groups. TLS
    looks at it once, when a connection begins, and connections and sessions may outlast it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def authenticate(self, credentials: Credentials) -> User | None:
        subject = credentials.certificate_subject
        if not subject or credentials.certificate_ends < self._clock.now().timestamp():
            return None
        names = [value for attribute, value in subject if attribute == "commonName"]
        if not names or not names[-1]:
            return None
        groups = [value for attribute, value in subject if attribute == "organizationName"]
        return User(names[-1], groups=all_groups(names[-1], groups))


@dataclass(frozen=True, slots=True)
class AnyOf:
    """The first authenticator that knows the credentials decides."""

    authenticators: Sequence[Authenticator]

    def authenticate(self, credentials: Credentials) -> User | None:
        for authenticator in self.authenticators:
            user = authenticator.authenticate(credentials)
            if user is not None:
                return user
        return None


#: Knows nobody.
NO_AUTHENTICATOR: Final = AnyOf(())


def identify(authenticator: Authenticator, credentials: Credentials) -> User:
    """The user, or ANONYMOUS if no credentials were given. Wrong ones raise Unauthorized."""
    try:
        user = authenticator.authenticate(credentials)
    except UnusableToken:
        # Why is for whoever may review tokens.
        raise Unauthorized("Unauthorized") from None
    if user is not None:
        return user
    if credentials.bearer_token:
        raise Unauthorized("Unauthorized")
    return ANONYMOUS


@dataclass(frozen=True, slots=True)
class Impersonation:
    """Whom a request asks to be instead (`kubectl --as`)."""

    user: str
    uid: str = ""
    groups: tuple[str, ...] = ()

    def as_user(self) -> User:
        groups = self.groups or _groups_of_service_account(self.user)
        return User(self.user, self.uid, all_groups(self.user, groups))


def all_groups(user: str, groups: Sequence[str]) -> tuple[str, ...]:
    """With the one that everybody is in who is somebody, unless it is said who is what."""
    found = dict.fromkeys(groups)
    if not {AUTHENTICATED_GROUP, UNAUTHENTICATED_GROUP} & found.keys():
        found[UNAUTHENTICATED_GROUP if user == ANONYMOUS.name else AUTHENTICATED_GROUP] = None
    return tuple(found)


def _groups_of_service_account(user: str) -> tuple[str, ...]:
    match user.split(":"):
        case ["system", "serviceaccount", namespace, name] if namespace and name:
            return ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
        case _:
            return ()


def holder_of(user: str) -> str:
    """Who is behind a name, for sharing what there is between them. Whoever may make one service
    account of a namespace may make any number: these are one."""
    return user.rpartition(":")[0] if user.startswith(_SERVICE_ACCOUNT) else user


def read_impersonation(headers: Iterable[tuple[bytes, bytes]]) -> Impersonation | None:
    """None if nobody is named. Naming a group without a user is a BadRequest."""
    found = [
        (name, value.decode("utf-8", "replace"))
        for name, value in headers
        if name.startswith(b"impersonate-")
    ]
    if not found:
        return None
    user = next((value for name, value in found if name == b"impersonate-user"), "")
    if not user:
        raise BadRequest("requested something without impersonating a user")
    return Impersonation(
        user,
        next((value for name, value in found if name == b"impersonate-uid"), ""),
        tuple(value for name, value in found if name == b"impersonate-group"),
    )


def read_bearer_token(header: bytes) -> str:
    if header.startswith(b"Bearer "):
        # As everybody writes it.
        return header[7:].decode("latin-1").strip()
    scheme, _, token = header.decode("latin-1").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def peer_end(certificate: Mapping[str, Any] | None) -> float:
    """When what `ssl.SSLObject.getpeercert()` returns expires."""
    if not certificate:
        return 0.0
    # Who has one has imported this: others need not.
    import ssl

    return float(ssl.cert_time_to_seconds(certificate["notAfter"]))


def peer_subject(certificate: Mapping[str, Any] | None) -> tuple[tuple[str, str], ...]:
    """The subject of what `ssl.SSLObject.getpeercert()` returns, flattened."""
    if not certificate:
        return ()
    return tuple(
        (str(attribute), str(value))
        for relative_name in certificate.get("subject", ())
        for attribute, value in relative_name
    )
