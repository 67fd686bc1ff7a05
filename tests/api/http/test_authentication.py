"""Authentication: credentials become users; wrong ones do not become anonymous."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from onejob.api.access.admin_token import admin_token
from onejob.api.access.authentication import (
    ADMIN,
    ANONYMOUS,
    AuthenticatorChain,
    CertificateAuthenticator,
    Credentials,
    Impersonation,
    TokenAuthenticator,
    identify,
    peer_end,
    peer_subject,
    read_bearer_token,
)
from onejob.clock import SystemClock
from onejob.wire.errors import Unauthorized
from onejob.wire.requests import User
from tests.api.http.wire import MovedClock

TOKENS = TokenAuthenticator({"secret": ADMIN, "other": User("other")})
CERTIFICATES = CertificateAuthenticator(SystemClock())
LATER = SystemClock().now().timestamp() + 3600


@pytest.mark.parametrize(
    ("header", "token"),
    [
        (b"Bearer abc", "abc"),
        (b"bearer  abc ", "abc"),
        (b"Basic abc", ""),
        (b"", ""),
        (b"Bearer", ""),
    ],
)
def test_the_token_is_read_from_its_header(header: bytes, token: str) -> None:
    assert read_bearer_token(header) == token


def test_a_known_token_is_a_user() -> None:
    assert identify(TOKENS, Credentials("secret")) is ADMIN
    assert identify(TOKENS, Credentials("other")).name == "other"


def test_no_credentials_are_anonymous_and_wrong_ones_are_refused() -> None:
    assert identify(TOKENS, Credentials()) is ANONYMOUS
    with pytest.raises(Unauthorized):
        identify(TOKENS, Credentials("secre"))


def test_a_certificate_names_user_and_groups() -> None:
    certificate = {
        "subject": (
            (("organizationName", "team-a"),),
            (("organizationName", "team-b"),),
            (("commonName", "alice"),),
        )
    }
    user = CERTIFICATES.authenticate(
        Credentials(certificate_subject=peer_subject(certificate), certificate_ends=LATER)
    )
    assert user == User("alice", groups=("team-a", "team-b", "system:authenticated"))


def test_missing_certificate_authenticates_no_user() -> None:
    assert peer_subject(None) == ()
    assert peer_end(None) == 0
    assert CERTIFICATES.authenticate(Credentials()) is None


def test_expired_certificate_authenticates_no_user() -> None:
    """TLS validated it only when the connection began."""
    end = peer_end({"notAfter": "Jan  1 12:00:00 2030 GMT"})
    alice = Credentials("", (("commonName", "alice"),), end)
    clock = MovedClock(datetime(2030, 1, 1, 11, tzinfo=UTC) - SystemClock().now())
    authenticator = CertificateAuthenticator(clock)
    assert identify(authenticator, alice).name == "alice"
    clock.ahead += timedelta(hours=2)
    assert identify(authenticator, alice) is ANONYMOUS


@pytest.mark.parametrize(
    ("user", "asked", "groups"),
    [
        ("bob", (), ("system:authenticated",)),
        ("bob", ("a", "b"), ("a", "b", "system:authenticated")),
        ("bob", ("system:unauthenticated",), ("system:unauthenticated",)),
        ("system:anonymous", (), ("system:unauthenticated",)),
        ("system:anonymous", ("a",), ("a", "system:unauthenticated")),
        (
            "system:serviceaccount:ns:robot",
            (),
            ("system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"),
        ),
    ],
)
def test_only_identified_users_join_system_authenticated(
    user: str, asked: tuple[str, ...], groups: tuple[str, ...]
) -> None:
    """As upstream does for impersonation, and hence for the names in certificates."""
    assert Impersonation(user, groups=asked).as_user() == User(user, groups=groups)
    if "serviceaccount" not in user:
        subject = [*(("organizationName", group) for group in asked), ("commonName", user)]
        found = CERTIFICATES.authenticate(Credentials("", subject, LATER))
        assert found == User(user, groups=groups)


def test_the_first_that_knows_decides() -> None:
    both = AuthenticatorChain([TOKENS, CERTIFICATES])
    credentials = Credentials("secret", (("commonName", "alice"),), LATER)
    assert identify(both, credentials) is ADMIN
    assert identify(both, Credentials("", (("commonName", "alice"),), LATER)).name == "alice"


def test_the_admin_token_is_made_once_and_kept_private(tmp_path: Path) -> None:
    path = tmp_path / "token"
    token = admin_token(path)
    assert len(token) >= 40
    assert admin_token(path) == token
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]
