"""Service-account tokens: their claims, and the period of their validity."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from onejob.api.access.authentication import ADMIN, API_AUDIENCE, RejectedToken
from onejob.api.access.authorization import AllowAuthenticated
from onejob.api.access.reviews import review
from onejob.api.access.service_accounts.signing_keys import (
    MAX_TOKEN_LIFETIME,
    BadKeys,
    SigningKeys,
    ensure_keys,
    rotate_keys,
)
from onejob.virtual_time import NOON
from onejob.wire.errors import ApiError, BadRequest, Conflict, Invalid, NotFound
from onejob.wire.kinds import BY_RESOURCE
from tests.api.access.accounts_support import (
    ACCOUNT,
    Accounts,
    claims_of,
    encoded,
    with_accounts,
)
from tests.api.service_support import a_pod, create

POD = BY_RESOURCE["pods"]
TOKEN_REVIEW = BY_RESOURCE["tokenreviews.authentication.k8s.io"]


def test_a_token_is_its_account_with_groups(tmp_path: Path) -> None:
    async def test(accounts: Accounts) -> None:
        user = accounts.who(accounts.token())
        assert user is not None
        assert user.name == "system:serviceaccount:default:default"
        assert user.uid == accounts.uid("serviceaccounts", "default")
        assert user.groups == (
            "system:serviceaccounts",
            "system:serviceaccounts:default",
            "system:authenticated",
        )

    with_accounts(tmp_path, test)


def test_a_token_has_the_claims_of_kubernetes(tmp_path: Path) -> None:
    async def test(accounts: Accounts) -> None:
        reference = {"kind": "Pod", "apiVersion": "v1", "name": "p"}
        answer = accounts.request(boundObjectRef=reference, expirationSeconds=600)
        claims = claims_of(answer["status"]["token"])
        now = int(NOON.timestamp())
        assert claims.pop("jti")
        assert claims == {
            "aud": [API_AUDIENCE],
            "exp": now + 600,
            "iat": now,
            "nbf": now,
            "iss": API_AUDIENCE,
            "sub": "system:serviceaccount:default:default",
            "kubernetes.io": {
                "namespace": "default",
                "serviceaccount": {
                    "name": "default",
                    "uid": accounts.uid("serviceaccounts", "default"),
                },
                "pod": {"name": "p", "uid": accounts.uid("pods", "p")},
            },
        }
        assert answer["status"]["expirationTimestamp"] == "2026-01-01T12:10:00Z"
        user = accounts.who(answer["status"]["token"])
        assert user is not None
        assert user.extra["authentication.kubernetes.io/pod-name"] == ("p",)
        assert user.extra["authentication.kubernetes.io/pod-uid"] == (accounts.uid("pods", "p"),)
        assert user.extra["authentication.kubernetes.io/credential-id"][0].startswith("JTI=")

    with_accounts(tmp_path, test)


def test_token_is_rejected_after_its_expiry(tmp_path: Path) -> None:
    async def test(accounts: Accounts) -> None:
        token = accounts.token(expirationSeconds=600)
        await asyncio.sleep(659)
        assert accounts.who(token)
        await asyncio.sleep(2)
        with pytest.raises(RejectedToken, match="expired"):
            accounts.who(token)

    with_accounts(tmp_path, test)


@pytest.mark.parametrize("bound", ["Pod", "Secret"])
def test_a_token_ends_with_the_object_that_it_is_bound_to(tmp_path: Path, bound: str) -> None:
    name, resource = {"Pod": ("p", "pods"), "Secret": ("s", "secrets")}[bound]

    async def test(accounts: Accounts) -> None:
        reference = {"kind": bound, "apiVersion": "v1", "name": name}
        token, other = accounts.token(boundObjectRef=reference), accounts.token()
        assert accounts.who(token)
        await accounts.remove(resource, name)
        with pytest.raises(RejectedToken):
            accounts.who(token)
        assert accounts.who(other)

    with_accounts(tmp_path, test)


def test_an_object_of_the_same_name_is_not_the_same(tmp_path: Path) -> None:
    async def test(accounts: Accounts) -> None:
        reference = {"kind": "Pod", "apiVersion": "v1", "name": "p"}
        bound, plain = accounts.token(boundObjectRef=reference), accounts.token()
        await accounts.remove("pods", "p")
        await create(accounts.service, a_pod("p"), POD)
        with pytest.raises(RejectedToken):
            accounts.who(bound)
        await accounts.remove("serviceaccounts", "default")
        await create(accounts.service, {"metadata": {"name": "default"}}, ACCOUNT)
        with pytest.raises(RejectedToken):
            accounts.who(plain)

    with_accounts(tmp_path, test)


def test_a_token_is_for_its_audience_only(tmp_path: Path) -> None:
    async def test(accounts: Accounts) -> None:
        token = accounts.token(audiences=["vault"])
        with pytest.raises(RejectedToken, match="audience"):
            accounts.who(token)
        assert accounts.who(token, ("vault",))

    with_accounts(tmp_path, test)


def test_token_is_rejected_after_any_modification(tmp_path: Path) -> None:
    async def test(accounts: Accounts) -> None:
        token = accounts.token()
        assert accounts.who(token)
        header, claims, signature = token.split(".")
        admin = {**claims_of(token), "sub": "system:serviceaccount:kube-system:admin"}
        none = encoded(
            {"alg": "none", "kid": SigningKeys(accounts.keys_file).documents()[0]["kid"]}
        )
        symmetric = encoded({"alg": "HS256"})
        for forged in (
            f"{header}.{encoded(admin)}.{signature}",
            f"{none}.{claims}.",
            f"{none}.{claims}.{signature}",
            f"{symmetric}.{claims}.{signature}",
            f"{encoded({'alg': 'ES256'})}.{claims}.{signature}",
            f"{encoded({'alg': 'ES256', 'kid': 'x'})}.{claims}.{signature}",
            f"{header}.{claims}.{'A' * 86}",
            f"{header}.{claims}.{signature[:-2]}",
            f"{header}.{claims}.{signature}==",
            f"{header}.{claims}.{signature[:-1]}\N{LATIN SMALL LETTER E WITH ACUTE}",
            f"{encoded([])}.{claims}.{signature}",
            f".{claims}.",
            "..",
            f"{header}.{encoded({'iss': API_AUDIENCE})}.{signature}",
            "a" * 20000 + f".{claims}.{signature}",
        ):
            with pytest.raises(RejectedToken):
                accounts.who(forged)

    with_accounts(tmp_path, test)


def test_tokens_of_others_are_left_to_others(tmp_path: Path) -> None:
    async def test(accounts: Accounts) -> None:
        foreign = f"{encoded({'alg': 'RS256'})}.{encoded({'iss': 'https://else'})}.c2ln"
        assert accounts.who(foreign) is None
        assert accounts.who("onejob_abc") is None

    with_accounts(tmp_path, test)


def test_after_a_rotation_older_tokens_hold_until_their_key_is_dropped(tmp_path: Path) -> None:
    async def test(accounts: Accounts) -> None:
        old = accounts.token(expirationSeconds=1 << 32)
        clock = accounts.service.clock
        rotate_keys(accounts.keys_file, clock.now())
        new = accounts.token()
        assert old.split(".")[0] != new.split(".")[0], "signing key replaced"
        assert accounts.who(old)
        assert accounts.who(new)
        assert len(accounts.accounts.key_set()["keys"]) == 2
        rotate_keys(accounts.keys_file, clock.now() + MAX_TOKEN_LIFETIME)
        assert len(accounts.accounts.key_set()["keys"]) == 2
        with pytest.raises(RejectedToken, match="key"):
            accounts.who(old)

    with_accounts(tmp_path, test)


def test_token_lifetime_is_limited_by_key_retention(tmp_path: Path) -> None:
    async def test(accounts: Accounts) -> None:
        claims = claims_of(accounts.token(expirationSeconds=1 << 32))
        assert claims["exp"] - claims["iat"] == MAX_TOKEN_LIFETIME.total_seconds()

    with_accounts(tmp_path, test)


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        ({"expirationSeconds": 599}, Invalid),
        ({"expirationSeconds": (1 << 32) + 1}, Invalid),
        ({"expirationSeconds": "soon"}, BadRequest),
        ({"audiences": "x"}, BadRequest),
        ({"boundObjectRef": {"kind": "Job", "apiVersion": "batch/v1", "name": "j"}}, BadRequest),
        ({"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "none"}}, NotFound),
        (
            {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": "x"}},
            Conflict,
        ),
    ],
)
def test_requests_that_cannot_be_met(
    tmp_path: Path, spec: dict[str, Any], error: type[ApiError]
) -> None:
    async def test(accounts: Accounts) -> None:
        with pytest.raises(error):
            accounts.request(**spec)

    with_accounts(tmp_path, test)


def test_a_token_is_bound_to_pods_of_its_own_account_only(tmp_path: Path) -> None:
    async def test(accounts: Accounts) -> None:
        await create(accounts.service, {"metadata": {"name": "other"}}, ACCOUNT)
        reference = {"kind": "Pod", "apiVersion": "v1", "name": "p"}
        with pytest.raises(BadRequest, match="different serviceaccount name"):
            accounts.request("other", boundObjectRef=reference)

    with_accounts(tmp_path, test)


def test_token_review_returns_user_and_audiences(tmp_path: Path) -> None:
    async def test(accounts: Accounts) -> None:
        def reviewed(token: str, *audiences: str) -> Any:
            spec: dict[str, Any] = {"token": token}
            if audiences:
                spec["audiences"] = list(audiences)
            return review(
                TOKEN_REVIEW,
                "",
                {"spec": spec},
                ADMIN,
                AllowAuthenticated(),
                accounts.accounts.authenticator,
            )["status"]

        token = accounts.token(audiences=["vault", "store"])
        status = reviewed(token, "vault", "else")
        assert status["authenticated"] is True
        assert status["audiences"] == ["vault"]
        assert status["user"]["username"] == "system:serviceaccount:default:default"
        assert reviewed(token) == {"user": {}, "error": "the token is for another audience"}
        assert reviewed("unknown") == {"user": {}}
        with pytest.raises(BadRequest):
            reviewed("")

    with_accounts(tmp_path, test)


def test_unreadable_key_file_is_logged_and_keeps_loaded_keys(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    ensure_keys(path, NOON)
    before = path.read_bytes()
    ensure_keys(path, NOON + timedelta(days=1))
    assert path.read_bytes() == before, "there is a key already"
    keys = SigningKeys(path)
    known = keys.documents()
    path.write_bytes(b"{")
    assert keys.documents() == known
    with pytest.raises(BadKeys, match=r"keys\.json"):
        SigningKeys(path)


def test_keys_are_private_and_foreign_ones_are_not_used(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    ensure_keys(path, NOON)
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_bytes(b'{"keys":[{"key":"nonsense","createdAt":"2026-01-01T00:00:00Z"}]}')
    with pytest.raises(BadKeys):
        SigningKeys(path)
