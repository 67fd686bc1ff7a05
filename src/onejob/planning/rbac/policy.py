"""RBAC policy: bindings, the roles they reference, and access decisions."""

from collections.abc import Callable, Iterable, Iterator

import msgspec
from msgspec import Struct, field

from onejob.objects.meta import LabelSelector, Meta, View
from onejob.planning.rbac.rules import AccessAttributes, PolicyRule, allows, allows_some
from onejob.wire.selectors import matcher_of

ROLES = "roles.rbac.authorization.k8s.io"
ROLE_BINDINGS = "rolebindings.rbac.authorization.k8s.io"
CLUSTER_ROLES = "clusterroles.rbac.authorization.k8s.io"
CLUSTER_ROLE_BINDINGS = "clusterrolebindings.rbac.authorization.k8s.io"
RBAC_RESOURCES = (ROLES, ROLE_BINDINGS, CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS)

GROUP = "rbac.authorization.k8s.io"
#: Group with unrestricted access, regardless of roles: an administrator cannot be locked out.
MASTERS = "system:masters"


class AggregationRule(View, frozen=True):
    cluster_role_selectors: tuple[LabelSelector, ...] = ()


class Role(View, frozen=True):
    """A Role or a ClusterRole; a ClusterRole has no namespace."""

    metadata: Meta = Meta()
    rules: tuple[PolicyRule, ...] = ()
    aggregation_rule: AggregationRule | None = None


class Subject(View, frozen=True):
    kind: str = ""
    name: str = ""
    namespace: str = ""


class RoleRef(View, frozen=True):
    kind: str = ""
    name: str = ""


class Binding(View, frozen=True):
    """A RoleBinding or a ClusterRoleBinding."""

    metadata: Meta = Meta()
    subjects: tuple[Subject, ...] = ()
    role_ref: RoleRef = RoleRef()


read_role = msgspec.json.Decoder(Role).decode
read_binding = msgspec.json.Decoder(Binding).decode


class Granted(Struct, frozen=True):
    """Rule granted to a user, and the binding it comes from."""

    rule: PolicyRule
    reason: str


class Policy(Struct):
    """All roles and bindings of a server. Updated in place by the access controller."""

    #: By (namespace, name); the namespace is "" for ClusterRoles.
    roles: dict[tuple[str, str], Role] = field(default_factory=dict)
    #: By namespace; "" for ClusterRoleBindings.
    bindings: dict[str, dict[str, Binding]] = field(default_factory=dict)
    #: Callbacks invoked after every change.
    listeners: list[Callable[[], None]] = field(default_factory=list)

    def put_role(self, role: Role) -> None:
        self.roles[role.metadata.namespace, role.metadata.name] = role
        self._notify_listeners()

    def remove_role(self, namespace: str, name: str) -> None:
        self.roles.pop((namespace, name), None)
        self._notify_listeners()

    def put_binding(self, binding: Binding) -> None:
        self.bindings.setdefault(binding.metadata.namespace, {})[binding.metadata.name] = binding
        self._notify_listeners()

    def remove_binding(self, namespace: str, name: str) -> None:
        self.bindings.get(namespace, {}).pop(name, None)
        self._notify_listeners()

    def _notify_listeners(self) -> None:
        for notify in self.listeners:
            notify()

    def granted(self, user: str, groups: Iterable[str], namespace: str) -> Iterator[Granted]:
        """Yield the rules granted to a user in a namespace, or cluster-wide if it is ""."""
        groups = frozenset(groups)
        places = ("", namespace) if namespace else ("",)
        for place in places:
            # Copy first: another thread may change the bindings.
            for binding in tuple(self.bindings.get(place, {}).values()):
                subject = next(
                    (who for who in binding.subjects if _matches_user(who, place, user, groups)),
                    None,
                )
                if subject is None:
                    continue
                reason = _allowed_reason(binding, subject)
                for rule in self.rules_of(binding.role_ref, place):
                    yield Granted(rule, reason)

    def rules_of(self, ref: RoleRef, namespace: str) -> tuple[PolicyRule, ...]:
        """Return the rules of the role that a binding in `namespace` references.

        Empty if there is no such role.
        """
        role = self.roles.get(("" if ref.kind == "ClusterRole" else namespace, ref.name))
        return role.rules if role is not None else ()

    def decide(
        self, user: str, groups: Iterable[str], namespace: str, question: AccessAttributes
    ) -> str | None:
        """Return the reason why a request is allowed; None if it is denied."""
        for granted in self.granted(user, groups, namespace):
            if allows(granted.rule, question):
                return granted.reason
        return None

    def concerning(
        self, user: str, groups: Iterable[str], namespace: str, question: AccessAttributes
    ) -> tuple[Granted, ...]:
        """Return the grants that allow the request for at least one name, in evaluation order."""
        granted = self.granted(user, groups, namespace)
        return tuple(item for item in granted if allows_some(item.rule, question))


def _matches_user(subject: Subject, namespace: str, user: str, groups: frozenset[str]) -> bool:
    """Return whether the subject of a binding is, or includes, the user."""
    match subject.kind:
        case "User":
            return subject.name == user
        case "Group":
            return subject.name in groups
        case "ServiceAccount":
            home = subject.namespace or namespace
            return bool(home) and user == f"system:serviceaccount:{home}:{subject.name}"
        case _:
            return False


def _allowed_reason(binding: Binding, subject: Subject) -> str:
    """Return the reason of a permission, in upstream's words."""
    home = binding.metadata.namespace
    kind = "RoleBinding" if home else "ClusterRoleBinding"
    name = f"{binding.metadata.name}/{home}" if home else binding.metadata.name
    who = subject.name
    if subject.kind == "ServiceAccount":
        who += f"/{subject.namespace or home}"
    ref = binding.role_ref
    return f'RBAC: allowed by {kind} "{name}" of {ref.kind} "{ref.name}" to {subject.kind} "{who}"'


def aggregated_rules(role: Role, cluster_roles: Iterable[Role]) -> tuple[PolicyRule, ...]:
    """Return the effective rules of a ClusterRole.

    With an aggregation rule these are the rules of all ClusterRoles whose labels match, ordered by
    role name, without duplicates.
    """
    if role.aggregation_rule is None:
        return role.rules
    found: dict[PolicyRule, None] = {}
    for selector in role.aggregation_rule.cluster_role_selectors:
        matcher = matcher_of(selector)
        for other in sorted(cluster_roles, key=lambda other: other.metadata.name):
            is_other = other.metadata.name != role.metadata.name
            if is_other and matcher.matches(other.metadata.labels):
                found.update(dict.fromkeys(other.rules))
    return tuple(found)
