"""Facade over service-account tokens: signing keys, issuer, authenticator, OIDC discovery."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from onejob.api.access.service_accounts.bound_objects import find_in
from onejob.api.access.service_accounts.jwt import ALGORITHM
from onejob.api.access.service_accounts.signing_keys import SigningKeys, ensure_keys
from onejob.api.access.service_accounts.token_requests import TokenRequests
from onejob.api.access.service_accounts.tokens import ISSUER, Issuer, ServiceAccountAuthenticator
from onejob.clock import Clock
from onejob.store.base import Store


class TokenWanted(Protocol):
    """Token request of a Pod's projected volume."""

    @property
    def account(self) -> str:
        """Name of the service account."""

    @property
    def pod(self) -> str:
        """Name of the Pod that the token is bound to."""

    @property
    def uid(self) -> str:
        """UID of that Pod."""

    @property
    def audience(self) -> str:
        """Audience of the token; "" for the API server."""

    @property
    def seconds(self) -> int:
        """Lifetime of the token."""


class ServiceAccounts:
    """Service-account token support of one server."""

    def __init__(self, keys_file: Path, store: Store, clock: Clock, url: Callable[[], str]) -> None:
        """Load the signing keys, creating the first one if needed.

        `url` returns the address of this server. Raises BadKeys and NotTrusted.
        """
        ensure_keys(keys_file, clock.now())
        self._keys = SigningKeys(keys_file)
        self._url = url
        find = find_in(store)
        self.authenticator = ServiceAccountAuthenticator(self._keys, find, clock)
        self.requests = TokenRequests(Issuer(self._keys, clock), find)

    def issue_for_pod(self, namespace: str, wanted: TokenWanted) -> str:
        """Return a token that becomes invalid when its Pod is deleted. Raises ApiError."""
        reference = {"kind": "Pod", "apiVersion": "v1", "name": wanted.pod, "uid": wanted.uid}
        spec: dict[str, Any] = {
            "expirationSeconds": wanted.seconds,
            "boundObjectRef": reference,
        }
        if wanted.audience:
            spec["audiences"] = [wanted.audience]
        made = self.requests.create(namespace, wanted.account, {"spec": spec})
        token: str = made["status"]["token"]
        return token

    def configuration(self) -> dict[str, Any]:
        """Return the OpenID Connect discovery document."""
        return {
            "issuer": ISSUER,
            "jwks_uri": f"{self._url()}/openid/v1/jwks",
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": [ALGORITHM],
        }

    def key_set(self) -> dict[str, Any]:
        """Return the JSON Web Key Set (public keys)."""
        return {"keys": self._keys.documents()}
