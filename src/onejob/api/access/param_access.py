"""Read access to the params of admission policies.

The values of params appear in messages of policies, so only users who may read them may refer to
them.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from onejob.api.access.authorization import Attributes, Authorizer
from onejob.api.strategy import Document
from onejob.objects.meta import Key
from onejob.planning.rbac.policy import MASTERS
from onejob.store.base import StagingStore
from onejob.wire.errors import Invalid
from onejob.wire.field_errors import forbidden
from onejob.wire.kinds import Kind
from onejob.wire.registry import KindRegistry
from onejob.wire.requests import User

_GROUP: Final = "admissionregistration.k8s.io"
_POLICIES: Final = ("mutatingadmissionpolicies", "validatingadmissionpolicies")
#: Bindings, and their policies.
_BINDINGS: Final = {
    f"mutatingadmissionpolicybindings.{_GROUP}": f"mutatingadmissionpolicies.{_GROUP}",
    f"validatingadmissionpolicybindings.{_GROUP}": f"validatingadmissionpolicies.{_GROUP}",
}


class ParamAccess:
    """Guard that runs before a policy or binding is written. Raises Invalid, as upstream."""

    resources = (*(f"{plural}.{_GROUP}" for plural in _POLICIES), *_BINDINGS)

    def __init__(self, store: StagingStore, kinds: KindRegistry, authorizer: Authorizer) -> None:
        self._store = store
        self._kinds = kinds
        self._authorizer = authorizer

    def __call__(
        self, user: User, kind: Kind, namespace: str, new: Document, old: Document | None
    ) -> None:
        field = "paramRef" if kind.resource in _BINDINGS else "paramKind"
        wanted = new["spec"].get(field)
        if not wanted or MASTERS in user.groups:
            return
        if old is not None and old["spec"].get(field) == wanted:
            return
        if field == "paramKind":
            text = self._refusal_of_kind(user, wanted)
        else:
            text = self._refusal_of_reference(user, kind, new["spec"])
        if text:
            name = new["metadata"].get("name", "")
            raise Invalid(kind.kind, kind.group, name, [forbidden(f"spec.{field}", text)])

    def _refusal_of_kind(self, user: User, wanted: Mapping[str, Any]) -> str:
        """Return why the user may not use this paramKind; "" if they may."""
        group, resource = self._resource_of(wanted)
        attributes = Attributes("get", group, "*", resource, namespace="*", name="*")
        if self._authorizer.authorize(user, attributes).allowed:
            return ""
        return (
            f'user {user.name} must have "get" permission on all objects of the referenced '
            f"paramKind (kind={wanted.get('kind', '')}, apiVersion={wanted.get('apiVersion', '')})"
        )

    def _refusal_of_reference(self, user: User, kind: Kind, spec: Mapping[str, Any]) -> str:
        """Return why the user may not refer to these parameters; "" if they may."""
        reference = spec["paramRef"]
        stored = self._store.newest(Key(_BINDINGS[kind.resource], "", spec["policyName"]))
        policy = {} if stored is None else msgspec.json.decode(stored.value)["spec"]
        group, resource = self._resource_of(policy.get("paramKind") or {})
        name = reference.get("name") or ""
        verb = "get" if name else "list"
        place = reference.get("namespace") or ""
        attributes = Attributes(verb, group, "*", resource, namespace=place, name=name)
        if self._authorizer.authorize(user, attributes).allowed:
            return ""
        if stored is None:
            return (
                f"unable to get policy {spec['policyName']} to determine minimum required "
                f'permissions and user {user.name} does not have "{verb}" permission for all '
                "groups, versions and resources"
            )
        return (
            f'user {user.name} does not have "{verb}" permission on the object referenced by '
            "paramRef"
        )

    def _resource_of(self, wanted: Mapping[str, Any]) -> tuple[str, str]:
        """Return group and resource of a paramKind; "*" for what is unknown."""
        if not wanted:
            return "*", "*"
        api_version = wanted.get("apiVersion", "")
        kind = self._kinds.by_kind.get((api_version, wanted.get("kind", "")))
        group = api_version.rpartition("/")[0]
        return group, "*" if kind is None else kind.plural
