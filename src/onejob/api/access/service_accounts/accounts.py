"""What a server has of service accounts, put together."""

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
    """What the volume of a Pod asks for."""

    @property
    def account(self) -> str: ...
    @property
    def pod(self) -> str: ...
    @property
    def uid(self) -> str: ...
    @property
    def audience(self) -> str:
        """ "" for the API server."""

    @property
    def seconds(self) -> int: ...


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

    def issue_for_pod(self, namespace: str, wanted: TokenWanted) -> str:
        """A token that ends with its Pod. Raises ApiError."""
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
