"""ServiceAccount admission: require a Pod's account to exist, and mount its token."""

from functools import lru_cache
from typing import Any, Final

import msgspec

from onejob.api.sections import held
from onejob.api.strategy import Document
from onejob.objects.meta import Key
from onejob.planning.pod.account_volume import (
    DEFAULT_ACCOUNT,
    mounts_token,
    with_account_volume,
)
from onejob.store.base import Store

Raw = msgspec.Raw

_ACCOUNTS: Final = "serviceaccounts"
#: Markers of account fields; a Pod without them uses the default account and its automount setting.
_MARKS: Final = (b'"serviceAccountName"', b'"serviceAccount"', b'"automountServiceAccountToken"')
_REMEMBERED: Final = 256


class _Account(msgspec.Struct, rename="camel", frozen=True):
    automount_service_account_token: bool | None = None


class _Spec(msgspec.Struct, rename="camel", frozen=True):
    service_account_name: str = DEFAULT_ACCOUNT
    automount_service_account_token: bool | None = None


_read_account = msgspec.json.Decoder(_Account).decode
_read_spec = lru_cache(maxsize=_REMEMBERED)(msgspec.json.Decoder(_Spec).decode)


class PodAccounts:
    def __init__(self, store: Store) -> None:
        self._store = store
        #: Revision and automount setting of each namespace's default account.
        self._defaults: dict[str, tuple[int, bool | None]] = {}

    def concern(self, namespace: str, document: bytes) -> bool:
        """Return whether `admit` may change or reject a Pod with this encoded document."""
        if any(mark in document for mark in _MARKS):
            return True
        return bool(self._default_says(namespace))

    def admit(self, namespace: str, pod: Document) -> str:
        """Add the token volume to a new, valid Pod if its account requires it.

        Returns the reason for a rejection, or "".
        """
        spec = held(pod, "spec")
        text = bytes(spec) if isinstance(spec, Raw) else msgspec.json.encode(spec)
        wanted = _read_spec(text)
        name = wanted.service_account_name
        if name == DEFAULT_ACCOUNT:
            says = self._default_says(namespace)
        else:
            stored = self._store.newest(Key(_ACCOUNTS, namespace, name))
            if stored is None:
                return (
                    f"error looking up service account {namespace}/{name}: "
                    f'serviceaccount "{name}" not found'
                )
            says = _read_account(stored.value).automount_service_account_token
        if mounts_token(name, wanted.automount_service_account_token, says):
            pod["spec"] = _completed(text)
        return ""

    def _default_says(self, namespace: str) -> bool | None:
        stored = self._store.newest(Key(_ACCOUNTS, namespace, DEFAULT_ACCOUNT))
        if stored is None:
            # A controller creates it shortly after its namespace.
            return None
        known = self._defaults.get(namespace)
        if known is None or known[0] != stored.revision:
            says = _read_account(stored.value).automount_service_account_token
            known = self._defaults[namespace] = (stored.revision, says)
        return known[1]


@lru_cache(maxsize=_REMEMBERED)
def _completed(spec: bytes) -> Any:
    """Return the spec with the token volume. Cached: all Pods of a Job have the same spec."""
    return Raw(msgspec.json.encode(with_account_volume(msgspec.json.decode(spec), spec)))
