"""ServiceAccount admission: require a Pod's account to exist, and mount its token."""

from typing import Final

import msgspec

from onejob.api.strategy import Document
from onejob.objects.meta import Key
from onejob.planning.pod.account_volume import (
    DEFAULT_ACCOUNT,
    mounts_token,
    with_account_volume,
)
from onejob.store.base import Store

_ACCOUNTS: Final = "serviceaccounts"


class _Account(msgspec.Struct, rename="camel", frozen=True):
    automount_service_account_token: bool | None = None


_read_account = msgspec.json.Decoder(_Account).decode


class PodAccounts:
    """ServiceAccount admission of Pods."""

    def __init__(self, store: Store) -> None:
        self._store = store
        #: Revision and automount setting of each namespace's default account.
        self._defaults: dict[str, tuple[int, bool | None]] = {}

    def admit(self, namespace: str, pod: Document) -> str:
        """Add the token volume to a new, valid Pod if its account requires it.

        Returns the reason for a rejection: another account than `default` that does not exist.
        Returns "" if the Pod is admitted.
        """
        spec = pod["spec"]
        name = spec.get("serviceAccountName", DEFAULT_ACCOUNT)
        if name == DEFAULT_ACCOUNT:
            says = self._default_automounts(namespace)
        else:
            stored = self._store.newest(Key(_ACCOUNTS, namespace, name))
            if stored is None:
                return (
                    f"error looking up service account {namespace}/{name}: "
                    f'serviceaccount "{name}" not found'
                )
            says = _read_account(stored.value).automount_service_account_token
        if mounts_token(name, spec.get("automountServiceAccountToken"), says):
            pod["spec"] = with_account_volume(spec, msgspec.json.encode(spec))
        return ""

    def _default_automounts(self, namespace: str) -> bool | None:
        """Return the automount setting of the namespace's default account, from a cache by
        revision.

        None if it is not set or the account does not exist yet; such Pods are admitted, without the
        volume.
        """
        stored = self._store.newest(Key(_ACCOUNTS, namespace, DEFAULT_ACCOUNT))
        if stored is None:
            # A controller creates it shortly after its namespace.
            return None
        known = self._defaults.get(namespace)
        if known is None or known[0] != stored.revision:
            says = _read_account(stored.value).automount_service_account_token
            known = self._defaults[namespace] = (stored.revision, says)
        return known[1]
