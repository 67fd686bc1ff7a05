"""Credentials become users; wrong ones do not become anonymous."""

from pathlib import Path

import pytest

from onejob.api.access.admin_token import admin_token
from onejob.api.access.authentication import (
    ADMIN,
    ANONYMOUS,
    AnyOf,
    CertificateAuthenticator,
    Credentials,
    Impersonation,
    TokenAuthenticator,
    identify,
    peer_subject,
    read_bearer_token,
)
from onejob.wire.errors import Unauthorized
from onejob.wire.requests import User

TOKENS = TokenAuthenticator({"secret": ADMIN, "other": User("other")})


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
    user = CertificateAuthenticator().authenticate(
        Credentials(certificate_subject=peer_subject(certificate))
    )
    assert user == User("alice", groups=("team-a", "team-b", "system:authenticated"))


def test_no_certificate_is_nobody() -> None:
    assert peer_subject(None) == ()
    assert CertificateAuthenticator().authenticate(Credentials()) is None


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
def test_only_somebody_is_authenticated(
    user: str, asked: tuple[str, ...], groups: tuple[str, ...]
) -> None:
    """As upstream has it for impersonation, and so for the names in certificates."""
    assert Impersonation(user, groups=asked).as_user() == User(user, groups=groups)
    if "serviceaccount" not in user:
        subject = [*(("organizationName", group) for group in asked), ("commonName", user)]
        found = CertificateAuthenticator().authenticate(Credentials(certificate_subject=subject))
        assert found == User(user, groups=groups)


def test_the_first_that_knows_decides() -> None:
    both = AnyOf([TOKENS, CertificateAuthenticator()])
    credentials = Credentials("secret", (("commonName", "alice"),))
    assert identify(both, credentials) is ADMIN
    assert identify(both, Credentials("", (("commonName", "alice"),))).name == "alice"


def test_the_admin_token_is_made_once_and_kept_private(tmp_path: Path) -> None:
    path = tmp_path / "token"
    token = admin_token(path)
    assert len(token) >= 40
    assert admin_token(path) == token
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]
