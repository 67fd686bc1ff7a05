"""RBAC privilege-escalation check: users grant only rights that they hold themselves."""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from onejob.api.access.authorization import EVERYTHING, Attributes, Authorizer
from onejob.api.strategy import Document
from onejob.planning.rbac.policy import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    GROUP,
    MASTERS,
    RBAC_RESOURCES,
    Policy,
    RoleRef,
)
from onejob.planning.rbac.rules import PolicyRule, merged, not_covered
from onejob.wire.errors import Forbidden, not_found
from onejob.wire.kinds import Kind
from onejob.wire.requests import User

#: Metadata fields ignored in the comparison: the garbage collector changes them, and they grant no
#: rights.
_HARMLESS: Final = ("ownerReferences", "finalizers", "managedFields", "resourceVersion")


class EscalationCheck:
    """Guard that runs before a role or binding is written.

    Raises Forbidden if it would grant rights that the user lacks.
    """

    resources = RBAC_RESOURCES

    def __init__(self, policy: Policy, authorizer: Authorizer) -> None:
        self._policy = policy
        self._authorizer = authorizer

    def __call__(
        self, user: User, kind: Kind, namespace: str, new: Document, old: Document | None
    ) -> None:
        if MASTERS in user.groups or (old is not None and _same_rights(new, old)):
            return
        if kind.resource.startswith(("rolebindings.", "clusterrolebindings.")):
            self._check_binding(user, kind, namespace, new)
        else:
            gathers = any(one is not None and one.get("aggregationRule") for one in (new, old))
            self._check_role(user, kind, namespace, new, gathers=gathers)

    def _check_role(
        self, user: User, kind: Kind, namespace: str, role: Document, *, gathers: bool
    ) -> None:
        """Check a Role or ClusterRole. `gathers` is true if it has, or had, an aggregation rule."""
        name = role["metadata"].get("name", "")
        wanted = Attributes("escalate", GROUP, "*", kind.plural, namespace=namespace, name=name)
        if self._authorizer.authorize(user, wanted).allowed:
            return
        rules = msgspec.convert(role.get("rules") or [], list[PolicyRule])
        self._require_held(user, kind, namespace, name, rules)
        gathers = gathers and kind.resource == CLUSTER_ROLES
        if gathers and not_covered(self._authorizer.rules(user, ""), EVERYTHING):
            # An aggregated role gains and loses rules as other roles change. Ending the aggregation
            # would preserve rights that an administrator means to withdraw, so both directions need
            # full rights.
            text = "must have cluster-admin privileges to use the aggregationRule"
            raise _forbidden(kind, name, text)

    def _check_binding(self, user: User, kind: Kind, namespace: str, binding: Document) -> None:
        ref = msgspec.convert(binding["roleRef"], RoleRef)
        plural = "clusterroles" if ref.kind == "ClusterRole" else "roles"
        wanted = Attributes("bind", GROUP, "*", plural, namespace=namespace, name=ref.name)
        if self._authorizer.authorize(user, wanted).allowed:
            return
        home = "" if ref.kind == "ClusterRole" else namespace
        if (home, ref.name) not in self._policy.roles:
            # The rights that the binding will grant are unknown until the role exists.
            raise not_found(f"{plural}.{GROUP}", ref.name)
        home = "" if kind.resource == CLUSTER_ROLE_BINDINGS else namespace
        rules = self._policy.rules_of(ref, namespace)
        self._require_held(user, kind, home, binding["metadata"].get("name", ""), rules)

    def _require_held(
        self, user: User, kind: Kind, namespace: str, name: str, rules: Iterable[PolicyRule]
    ) -> None:
        missing = not_covered(self._authorizer.rules(user, namespace), rules)
        if missing:
            groups = "[" + " ".join(f'"{group}"' for group in user.groups) + "]"
            lines = "\n".join(sorted(map(str, merged(missing))))
            raise _forbidden(
                kind,
                name,
                f'user "{user.name}" (groups={groups}) is attempting to grant RBAC permissions '
                f"not currently held:\n{lines}",
            )


def _same_rights(new: Document, old: Document) -> bool:
    """Return whether an update changes nothing but harmless metadata."""
    return _without_harmless_metadata(new) == _without_harmless_metadata(old)


def _without_harmless_metadata(document: Document) -> dict[str, Any]:
    """Return the document without metadata that cannot change rights."""
    metadata = {
        name: value for name, value in document["metadata"].items() if name not in _HARMLESS
    }
    return {**document, "metadata": metadata}


def _forbidden(kind: Kind, name: str, text: str) -> Forbidden:
    """Return the error of a write of a role or binding."""
    details = {"name": name, "group": kind.group, "kind": kind.plural}
    return Forbidden(f'{kind.resource} "{name}" is forbidden: {text}', details=details)
