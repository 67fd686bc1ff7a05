"""Authentication stage: identify the user of a request, and whom they impersonate."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from onejob.api.access.authentication import (
    ANONYMOUS,
    Authenticator,
    Credentials,
    identify,
    read_bearer_token,
    read_impersonation,
)
from onejob.api.access.authorization import Authorizer, needed_to_impersonate, require
from onejob.api.http.dashboard import Dashboard
from onejob.api.http.operations import attributes_of
from onejob.api.http.requests import Request
from onejob.api.http.routing import RequestPath
from onejob.wire.errors import ApiError, BadRequest, Unauthorized
from onejob.wire.requests import User

if TYPE_CHECKING:
    from onejob.api.audit.recorder import AuditedRequest

#: Headers that determine the identity or the target of a request.
_SINGLE_HEADERS: Final = frozenset(
    (
        *(b"authorization", b"host", b"content-type", b"origin", b"sec-fetch-site"),
        *(b"impersonate-user", b"impersonate-uid", b"x-onejob-session"),
    )
)


class Authentication:
    """Maps the credentials of a request to its user.

    Guarantees: only public paths are served to the anonymous user; nobody impersonates a user, uid
    or group without permission.
    """

    def __init__(
        self, authenticator: Authenticator, authorizer: Authorizer, dashboard: Dashboard | None
    ) -> None:
        self._authenticator = authenticator
        self._authorizer = authorizer
        self._dashboard = dashboard

    def authenticate(
        self, request: Request, path: RequestPath, audited: "AuditedRequest | None" = None
    ) -> tuple[User, Credentials]:
        """Return the user for whom the request is performed, and the credentials of its sender.

        Both users are added to the audit record.

        Raises Unauthorized, BadRequest for contradictory headers, Forbidden for an impersonation.
        """
        try:
            if len(request.fields) < len(request.headers):
                _require_single(request.headers)
            credentials = self._credentials(request)
            user = identify(self._authenticator, credentials)
            if user is ANONYMOUS and not path.is_public:
                raise Unauthorized("Unauthorized")
            other = read_impersonation(request.headers)
        except ApiError:
            if audited is not None:
                _identified(audited, None, None, request, path)
            raise
        acts_as = None if other is None else other.as_user()
        if audited is not None:
            _identified(audited, user, acts_as, request, path)
        if other is None or acts_as is None:
            return user, credentials
        for wanted in needed_to_impersonate(other):
            require(self._authorizer, user, wanted)
        return acts_as, credentials

    def _credentials(self, request: Request) -> Credentials:
        """Return the credentials of the dashboard session, the token or the certificate.

        Raises Unauthorized if the session has expired.
        """
        if self._dashboard is not None:
            session = self._dashboard.session(request.fields)
            if session is not None:
                return session
        peer = request.peer
        return Credentials(
            read_bearer_token(request.fields.get(b"authorization", b"")),
            peer.certificate_subject,
            peer.certificate_ends,
        )


def _identified(
    audited: "AuditedRequest",
    user: User | None,
    acts_as: User | None,
    request: Request,
    path: RequestPath,
) -> None:
    """Add the user and the operation to the audit record."""
    # Only the dashboard knows which objects it reads, so it completes the audit record later.
    wanted = attributes_of(request, path)
    audited.identified(user, acts_as, wanted, deferred=path.is_dashboard_api)


def _require_single(headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Raise BadRequest if a header that determines identity or target occurs twice.

    This server and a proxy in front of it might each use a different one.
    """
    given = [name for name, _ in headers if name in _SINGLE_HEADERS]
    for name in given:
        if given.count(name) > 1:
            raise BadRequest(f"the header {name.decode().title()} is given more than once")
