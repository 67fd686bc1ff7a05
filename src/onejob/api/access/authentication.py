"""Request authentication: map bearer tokens and client certificates to Users."""

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
#: Audience of tokens meant for the API server; the value is kubeadm's default.
API_AUDIENCE: Final = "https://kubernetes.default.svc.cluster.local"
API_AUDIENCES: Final = (API_AUDIENCE,)


class RejectedToken(Exception):
    """A token issued by this server that is invalid, expired or meant for another audience.

    The text gives the reason.
    """


class Credentials(Struct, frozen=True):
    """Credentials of one request."""

    bearer_token: str = ""
    #: The verified peer certificate's subject as (attribute, value) pairs.
    certificate_subject: Sequence[tuple[str, str]] = ()
    #: Expiry of the certificate, in seconds since 1970.
    certificate_ends: float = 0.0
    #: Accepted audiences; a token must be issued for at least one of them.
    audiences: tuple[str, ...] = API_AUDIENCES


class Authenticator(Protocol):
    """Authentication method: maps the credentials of a request to a User.

    Methods are chained with `AuthenticatorChain`: None passes the credentials on to the next one,
    RejectedToken ends the chain.
    """

    def authenticate(self, credentials: Credentials) -> User | None:
        """Return the user, or None if this authenticator does not recognise the credentials.

        Raises RejectedToken if it recognises a token but must reject it. Called with every request.
        """


@dataclass(frozen=True, slots=True)
class TokenAuthenticator:
    """Authenticator for a fixed set of tokens, compared in constant time."""

    users: Mapping[str, User]

    def authenticate(self, credentials: Credentials) -> User | None:
        if API_AUDIENCE not in credentials.audiences:
            return None
        given = credentials.bearer_token.encode()
        found = None
        # Compare every token, so that timing reveals nothing about near matches.
        for token, user in self.users.items():
            if hmac.compare_digest(token.encode(), given):
                found = user
        return found


class CertificateAuthenticator:
    """Authenticator for client certificates that TLS has verified.

    The common name is the user, organisations are the groups. TLS verifies a certificate only once,
    when the connection opens; connections and sessions may outlive it, so expiry is checked here
    again.
    """

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
class AuthenticatorChain:
    """Chain of authenticators; the first one that recognises the credentials decides."""

    authenticators: Sequence[Authenticator]

    def authenticate(self, credentials: Credentials) -> User | None:
        for authenticator in self.authenticators:
            user = authenticator.authenticate(credentials)
            if user is not None:
                return user
        return None


#: Authenticator that recognises no credentials.
NO_AUTHENTICATOR: Final = AuthenticatorChain(())


def identify(authenticator: Authenticator, credentials: Credentials) -> User:
    """Return the authenticated user, or ANONYMOUS if the request has no credentials.

    Raises Unauthorized for a token that is not accepted.
    """
    try:
        user = authenticator.authenticate(credentials)
    except RejectedToken:
        # The reason is disclosed only to users who may create TokenReviews.
        raise Unauthorized("Unauthorized") from None
    if user is not None:
        return user
    if credentials.bearer_token:
        raise Unauthorized("Unauthorized")
    return ANONYMOUS


@dataclass(frozen=True, slots=True)
class Impersonation:
    """User, uid and groups requested by impersonation headers (`kubectl --as`)."""

    user: str
    uid: str = ""
    groups: tuple[str, ...] = ()

    def as_user(self) -> User:
        groups = self.groups or _groups_of_service_account(self.user)
        return User(self.user, self.uid, all_groups(self.user, groups))


def all_groups(user: str, groups: Sequence[str]) -> tuple[str, ...]:
    """Return `groups` plus system:authenticated, or system:unauthenticated for the anonymous user.

    Groups that already contain one of the two are returned unchanged.
    """
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


def fairness_principal(user: str) -> str:
    """Return the party that a user name is attributed to when capacity is shared fairly.

    All service accounts of a namespace count as one party: a user who may create one of them may
    create any number.
    """
    return user.rpartition(":")[0] if user.startswith(_SERVICE_ACCOUNT) else user


def read_impersonation(headers: Iterable[tuple[bytes, bytes]]) -> Impersonation | None:
    """Return the impersonation that the headers request, or None.

    Raises BadRequest for a group or uid without a user.
    """
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
        # Fast path: the usual capitalisation.
        return header[7:].decode("latin-1").strip()
    scheme, _, token = header.decode("latin-1").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def peer_end(certificate: Mapping[str, Any] | None) -> float:
    """Return the expiry of a peer certificate in seconds since 1970; 0.0 for None.

    `certificate` is the result of `ssl.SSLObject.getpeercert()`.
    """
    if not certificate:
        return 0.0
    # Imported lazily: a process that holds a peer certificate has imported it already.
    import ssl

    return float(ssl.cert_time_to_seconds(certificate["notAfter"]))


def peer_subject(certificate: Mapping[str, Any] | None) -> tuple[tuple[str, str], ...]:
    """Return the subject of a peer certificate as a flat tuple of (attribute, value) pairs.

    `certificate` is the result of `ssl.SSLObject.getpeercert()`.
    """
    if not certificate:
        return ()
    return tuple(
        (str(attribute), str(value))
        for relative_name in certificate.get("subject", ())
        for attribute, value in relative_name
    )
