"""What a server has of service accounts, put together."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from onejob.api.access.service_accounts.bound_objects import find_in
from onejob.api.access.service_accounts.jwt import ALGORITHM
from onejob.api.access.service_accounts.signing_keys import SigningKeys, ensure_keys
from onejob.api.access.service_accounts.token_requests import TokenRequests
from onejob.api.access.service_accounts.tokens import ISSUER, Issuer, ServiceAccountAuthenticator
from onejob.clock import Clock
from onejob.store.base import Store


class ServiceAccounts:
    """All that a server does with service-account tokens."""

    def __init__(self, keys_file: Path, store: Store, clock: Clock, url: Callable[[], str]) -> None:
        """`url` is where this server is reached. Raises BadKeys and NotTrusted."""
        ensure_keys(keys_file, clock.now())
        self._keys = SigningKeys(keys_file)
        self._url = url
        find = find_in(store)
        self.authenticator = ServiceAccountAuthenticator(self._keys, find, clock)
        self.requests = TokenRequests(Issuer(self._keys, clock), find)

    def configuration(self) -> dict[str, Any]:
        """The discovery document of OpenID Connect."""
        return {
            "issuer": ISSUER,
            "jwks_uri": f"{self._url()}/openid/v1/jwks",
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": [ALGORITHM],
        }

    def key_set(self) -> dict[str, Any]:
        """The public keys."""
        return {"keys": self._keys.documents()}
