"""Service with service accounts, and their tokens."""

import base64
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from onejob.api.access.authentication import API_AUDIENCES, Credentials
from onejob.api.access.service_accounts.accounts import ServiceAccounts
from onejob.api.service import Service
from onejob.objects.meta import Key
from onejob.wire.kinds import BY_RESOURCE
from onejob.wire.requests import User
from tests.api.service_support import PERSON, a_pod, create, read, served

ACCOUNT = BY_RESOURCE["serviceaccounts"]
POD = BY_RESOURCE["pods"]
SECRET = BY_RESOURCE["secrets"]


class Accounts:
    """Service, accounts and token helpers of one test."""

    def __init__(self, folder: Path, service: Service) -> None:
        self.keys_file = folder / "keys.json"
        self.service = service
        self.accounts = ServiceAccounts(
            self.keys_file, service.store, service.clock, lambda: "https://here"
        )

    def request(self, name: str = "default", **spec: Any) -> dict[str, Any]:
        return self.accounts.requests.create("default", name, {"spec": spec})

    def token(self, name: str = "default", **spec: Any) -> str:
        token: str = self.request(name, **spec)["status"]["token"]
        return token

    def who(self, token: str, audiences: tuple[str, ...] = API_AUDIENCES) -> User | None:
        return self.accounts.authenticator.authenticate(Credentials(token, audiences=audiences))

    async def remove(self, resource: str, name: str) -> None:
        from onejob.wire.requests import DeleteOptions

        kind = BY_RESOURCE[resource]
        await self.service.delete(kind, "default", name, DeleteOptions(grace_seconds=0))

    def uid(self, resource: str, name: str) -> str:
        stored = self.service.store.get(Key(resource, "default", name))
        assert stored is not None
        uid: str = read(stored.value)["metadata"]["uid"]
        return uid


def with_accounts(folder: Path, test: Callable[[Accounts], Awaitable[None]]) -> None:
    """Run a test with the account `default`, a Pod `p` that uses it and a Secret `s`."""

    async def main(service: Service) -> None:
        await create(service, {"metadata": {"name": "default"}}, ACCOUNT)
        await create(service, a_pod("p"), POD)
        await create(service, {"metadata": {"name": "s"}}, SECRET)
        await test(Accounts(folder, service))

    served(folder, main)


def claims_of(token: str) -> dict[str, Any]:
    part = token.split(".")[1]
    claims: dict[str, Any] = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return claims


def encoded(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


__all__ = ["ACCOUNT", "PERSON", "Accounts", "claims_of", "encoded", "with_accounts"]
