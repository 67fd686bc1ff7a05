"""Service account tokens projected into volumes of Pods."""

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from onejob.node.runtime import Fetch
from onejob.node.setup.environment import TOKENS
from onejob.objects.meta import Key
from onejob.objects.pod_spec import NodePod, ServiceAccountToken

#: Field of the token in the document fetched for its key.
TOKEN_FIELD: Final = "token"
#: As in the kubelet: a token is renewed after four fifths of its lifetime, or after a day.
_SHARE: Final = 0.8
_MAX_RENEWAL_SECONDS: Final = 24 * 3600.0


class TokenWanted(msgspec.Struct, frozen=True, array_like=True):
    """Properties of a requested token, encoded as the name in its key."""

    account: str
    pod: str
    uid: str
    audience: str
    seconds: int


#: Issues a token in a namespace. Raises ApiError.
IssueToken = Callable[[str, TokenWanted], str]


def token_key(pod: NodePod, token: ServiceAccountToken) -> Key:
    """Return the key under which a token is fetched like a document."""
    wanted = TokenWanted(
        pod.spec.service_account_name,
        pod.metadata.name,
        pod.metadata.uid,
        token.audience,
        token.expiration_seconds,
    )
    return Key(TOKENS, pod.metadata.namespace, msgspec.json.encode(wanted).decode())


def refresh_after_seconds(pod: NodePod) -> float | None:
    """Return the seconds after which the tokens in a Pod's volumes must be renewed; None without
    tokens."""
    lives = [token.expiration_seconds for token in pod.tokens]
    return min(min(lives) * _SHARE, _MAX_RENEWAL_SECONDS) if lives else None


def fetch_with_tokens(fetch: Fetch, issue: IssueToken) -> Fetch:
    """Return a `Fetch` that also issues tokens, so that they are fetched like ConfigMaps and
    Secrets."""

    def fetch_any(key: Key) -> Awaitable[bytes]:
        return _issue_encoded(key, issue) if key.resource == TOKENS else fetch(key)

    return fetch_any


async def _issue_encoded(key: Key, issue: IssueToken) -> bytes:
    wanted = msgspec.json.decode(key.name, type=TokenWanted)
    return msgspec.json.encode({"data": {TOKEN_FIELD: issue(key.namespace, wanted)}})
