"""Admission control: validate and mutate writes by namespace policy.

A namespace without policy costs three dict lookups. The policy of a Namespace or PriorityClass is
parsed once per version.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Final, Protocol, get_args

import msgspec

from onejob.api.admission.dynamic.attributes import CONFIGURATIONS
from onejob.api.admission.dynamic.chain import DynamicAdmission
from onejob.api.admission.limit_ranges import LIMIT_RANGES, LimitRanges
from onejob.api.admission.pod_plugins import PRIORITY, TOLERATIONS, add_default_tolerations
from onejob.api.admission.pod_security import (
    images_changed,
    label_errors,
    namespace_warnings,
    pod_audit,
    pod_refusal,
    pod_warning,
    policy_of,
)
from onejob.api.admission.priority import PRIORITY_CLASSES, Priorities
from onejob.api.admission.quotas import RESOURCE_QUOTAS, Quotas
from onejob.api.admission.templates import TEMPLATE_RESOURCES, template_of
from onejob.api.audit_notes import note, noted
from onejob.api.documents import deep_copy
from onejob.api.strategy import Document
from onejob.metrics import AdmissionPlugin
from onejob.objects.meta import NAMESPACES, PODS, Key
from onejob.planning.pod import confinement
from onejob.planning.pod.confinement import Confinement
from onejob.planning.pod_security.labels import PREFIX, Policy
from onejob.planning.quota import limit_range
from onejob.planning.quota.resource_quota import CLAIMS
from onejob.store.base import Change, Store
from onejob.wire.errors import Forbidden, Invalid
from onejob.wire.field_errors import FieldError
from onejob.wire.kinds import Kind
from onejob.wire.requests import Target

if TYPE_CHECKING:
    from onejob.api.admission.pod_accounts import PodAccounts
    from onejob.planning.pod.room import NodeRoom

#: Markers of policy in an encoded Namespace; without them it is not parsed.
_LABELS: Final = PREFIX.encode()
_ANNOTATIONS: Final = confinement.PREFIX.encode()
#: Writes to these resources invalidate results of admission.
_POLICY_RESOURCES: Final = frozenset(
    (
        NAMESPACES,
        LIMIT_RANGES,
        RESOURCE_QUOTAS,
        PRIORITY_CLASSES,
        "serviceaccounts",
        *CONFIGURATIONS,
    )
)


class ObservableStore(Store, Protocol):
    """Store that reports staged writes and rollbacks."""

    def newest_in(self, resource: str, namespace: str) -> Iterator[tuple[str, bytes | None]]: ...

    def follow(
        self, on_staged: Callable[[Change], None], on_rollback: Callable[[], None]
    ) -> None: ...


class NamespaceRules(msgspec.Struct, frozen=True):
    """Admission policy parsed from one version of a Namespace."""

    revision: int
    pod_security: Policy
    confinement: Confinement


class Admission:
    """Admission control of one server, with the plugins in `AdmissionPlugin`.

    Guarantees: decisions include all staged writes and no rolled-back ones. `generation` changes
    whenever policy does, so results may be cached by it. A rejection raises Forbidden or Invalid;
    each Forbidden is counted in `denied`.

    Concurrency: reviews may run in the worker thread; `require_quota` must run on the event loop's.
    """

    def __init__(
        self,
        store: ObservableStore,
        resources: Callable[[], Iterable[str]],
        *,
        can_change_user: bool = True,
    ) -> None:
        """`resources` returns all namespaced resources that are served.

        `can_change_user` is true if Pods can run as users other than the server's.
        """
        self._store = store
        self._can_change_user = can_change_user
        #: Host folders that Pods of any namespace may mount; None for all.
        self.host_paths: tuple[str, ...] | None = None
        self._rules: dict[str, NamespaceRules] = {}
        #: Capacity of the server's own node; None without one.
        self.room: NodeRoom | None = None
        #: Number of rejections by plugin; plugins that exist upstream have their upstream names.
        self.denied: Counter[AdmissionPlugin] = Counter(dict.fromkeys(get_args(AdmissionPlugin), 0))
        #: Policies and webhooks that users configure.
        self.dynamic = DynamicAdmission()
        #: Incremented with every change of policy or of a namespace.
        self.generation = 0
        self._priorities = Priorities(store)
        self._adds_tolerations = False
        self._limit_ranges = LimitRanges(store)
        self._accounts: PodAccounts | None = None
        self.quotas = Quotas(store, resources)
        store.follow(self._on_staged, self._on_rollback)

    @property
    def accounts(self) -> "PodAccounts | None":
        """ServiceAccount admission; None on a server that issues no tokens."""
        return self._accounts

    @accounts.setter
    def accounts(self, accounts: "PodAccounts") -> None:
        self._accounts = accounts
        self.generation += 1

    def _on_staged(self, written: Change) -> None:
        """Invalidate the caches that depend on a staged write."""
        if written.key.resource in _POLICY_RESOURCES:
            self.generation += 1
            if written.key.resource in CONFIGURATIONS:
                self.dynamic.staged(written)
            self._priorities.staged(written)
            self._limit_ranges.staged(written)
            self.quotas.staged(written)
        elif self.quotas.usage:
            self.quotas.staged(written)

    def _on_rollback(self) -> None:
        """Reload the caches after staged writes were dropped."""
        self.generation += 1
        if self.room is not None:
            self.room.cancel_after(self._store.revision)
        self.dynamic.reload()
        self._priorities.reload()
        self._limit_ranges.reload()
        self.quotas.reload()

    def mutate(self, kind: Kind, namespace: str, doc: Document) -> None:
        """Apply the namespace's defaults to a new object, after the defaults of its kind."""
        if kind.resource == CLAIMS:
            # Imported with the first claim: no run and few servers have any.
            from onejob.api.admission.storage_classes import set_default_class

            set_default_class(self._store, doc)
        if kind.resource != PODS:
            return
        rules = self._rules_of(namespace)
        if rules is not None:
            confinement.set_defaults(rules.confinement, doc["spec"])
        for limits in self._limit_ranges.of(namespace):
            if said := limit_range.set_defaults(limits, doc["spec"]):
                doc["metadata"].setdefault("annotations", {})[limit_range.ANNOTATION] = said

    def enable(self, plugins: Collection[str]) -> None:
        """Enable plugins that add defaults to Pods."""
        self._priorities.always = PRIORITY in plugins
        self._adds_tolerations = TOLERATIONS in plugins
        self.generation += 1

    def assign(self, kind: Kind, namespace: str, doc: Document) -> None:
        """Set priority, tolerations and token volume of a new Pod. Raises Forbidden.

        As upstream, that is before policies and webhooks.
        """
        if kind.resource != PODS or not doc.get("spec"):
            return
        if refusal := self._priorities.admit(doc):
            raise self._count_refusal("Priority", kind, doc, refusal)
        if self._adds_tolerations:
            add_default_tolerations(doc["spec"])
        if self.accounts is not None and (refusal := self.accounts.admit(namespace, doc)):
            raise self._count_refusal("ServiceAccount", kind, doc, refusal)

    def review_create(
        self, kind: Kind, namespace: str, doc: Document, *, assigned: bool = False
    ) -> list[str]:
        """Validate a new object that has its defaults and is valid by the rules of its kind.

        Sets a Pod's priority and adds the volume with its token, unless they are `assigned`
        already. Returns warnings. Raises Forbidden or Invalid.
        """
        resource = kind.resource
        if resource == PODS:
            if not assigned:
                self.assign(kind, namespace, doc)
        elif resource == PRIORITY_CLASSES:
            self._review_class(kind, doc, is_new=True)
        if resource == NAMESPACES:
            if errors := [*label_errors(doc, None), *annotation_errors(doc, None)]:
                raise Invalid(kind.kind, kind.group, doc["metadata"].get("name", ""), errors)
            return []
        if resource in (PODS, CLAIMS):
            self._require_limits(kind, namespace, doc)
        if resource != PODS and resource not in TEMPLATE_RESOURCES:
            return []
        rules = self._rules_of(namespace)
        warnings = self._confine(rules, kind, doc)
        return warnings if rules is None else [*warnings, *self._review_pods(rules, kind, doc)]

    def review_update(self, target: Target, new: Document, old: Document) -> list[str]:
        """Return the warnings about an update. Raises the error that rejects it."""
        kind = target.kind
        resource = kind.resource
        if target.subresource == "resize":
            self._review_resize(target, new, old)
            return []
        if resource == NAMESPACES:
            if errors := [*label_errors(new, old), *annotation_errors(new, old)]:
                raise Invalid(kind.kind, kind.group, target.name, errors)
            return list(namespace_warnings(self._store, new, old))
        if resource == PRIORITY_CLASSES:
            self._review_class(kind, new, is_new=False)
        if resource == CLAIMS and "deletionTimestamp" not in old["metadata"]:
            self._require_limits(kind, target.namespace, new)
            from onejob.api.admission.storage_classes import growth_refusal

            if refusal := growth_refusal(self._store, new, old):
                raise self._count_refusal("PersistentVolumeClaimResize", kind, new, refusal)
        if resource != PODS and resource not in TEMPLATE_RESOURCES:
            return []
        rules = self._rules_of(target.namespace)
        if target.subresource == "ephemeralcontainers":
            # They may name users and volumes, which are checked at no other time.
            self._confine(rules, kind, new)
        if rules is None or (resource == PODS and not images_changed(new, old)):
            return []
        return self._review_pods(rules, kind, new)

    def default_resize(self, namespace: str, doc: Document) -> None:
        """Set the namespace's default resources in a Pod that is resized."""
        for limits in self._limit_ranges.of(namespace):
            limit_range.set_defaults(limits, doc["spec"])

    def _review_resize(self, target: Target, new: Document, old: Document) -> None:
        """Raise Forbidden for resources beyond the namespace's bounds, or the node's."""
        self._require_limits(target.kind, target.namespace, new)
        node = new["spec"].get("nodeName")
        if node and new["metadata"].get("generation") != old["metadata"].get("generation"):
            from onejob.api.admission.pod_resize import refusal_by_node

            refusal = refusal_by_node(self._store, node, new["spec"])
            if refusal is not None:
                error = self._count_refusal("PodResizeValidator", target.kind, new, refusal.message)
                if refusal.cause:
                    error.details = {**error.details, "causes": [{"reason": refusal.cause}]}
                raise error

    def host_paths_of(self, namespace: str) -> tuple[str, ...] | None:
        """Return the host folders that Pods of the namespace may mount, by its current policy; None
        for all."""
        rules = self._rules_of(namespace)
        return self._host_paths(Confinement() if rules is None else rules.confinement)

    def _host_paths(self, said: Confinement) -> tuple[str, ...] | None:
        return confinement.host_paths(said, self.host_paths)

    def _confine(self, rules: NamespaceRules | None, kind: Kind, doc: Document) -> list[str]:
        """Raise Forbidden for a Pod that violates the confinement policy.

        Returns a warning for a template whose Pods would violate it.
        """
        if rules is None and self.host_paths is None:
            return []
        said = Confinement() if rules is None else rules.confinement
        said = msgspec.structs.replace(said, host_paths=self._host_paths(said))
        if not said:
            return []
        if kind.resource == PODS:
            spec = doc.get("spec") or {}
            refusal = confinement.pod_refusal(said, spec, can_change_user=self._can_change_user)
            if refusal:
                raise self._count_refusal("Confinement", kind, doc, refusal)
            return []
        template = template_of(kind.resource, doc)
        spec = deep_copy((template or {}).get("spec") or {})
        confinement.set_defaults(said, spec)
        refusal = confinement.pod_refusal(said, spec, can_change_user=self._can_change_user)
        return [f"its Pods will be refused: {refusal}"] if refusal else []

    def _review_class(self, kind: Kind, doc: Document, *, is_new: bool) -> None:
        """Raise Forbidden if the PriorityClass would be a second global default."""
        if refusal := self._priorities.second_default(doc, is_new=is_new):
            raise self._count_refusal("Priority", kind, doc, refusal)

    def require_quota(self, key: Key, doc: Document, *, created: bool) -> None:
        """Raise Forbidden if the object exceeds a quota.

        Call on the event loop's thread, directly before staging.
        """
        if not self.quotas.has_quota(key.namespace):
            return
        if refusal := self.quotas.refusal(key, doc, created=created):
            self.denied["ResourceQuota"] += 1
            raise refused(key.resource, key.name, refusal)

    def _require_limits(self, kind: Kind, namespace: str, doc: Document) -> None:
        judge = limit_range.pod_refusal if kind.resource == PODS else limit_range.claim_refusal
        for limits in self._limit_ranges.of(namespace):
            if refusal := judge(limits, doc.get("spec") or {}):
                raise self._count_refusal("LimitRanger", kind, doc, refusal)

    def _rules_of(self, namespace: str) -> NamespaceRules | None:
        """Return the policy of a namespace, from a cache by revision; None if it has none or does
        not exist."""
        stored = self._store.newest(Key(NAMESPACES, "", namespace))
        if stored is None:
            return None
        value = stored.value
        if _LABELS not in value and _ANNOTATIONS not in value:
            return None
        rules = self._rules.get(namespace)
        if rules is None or rules.revision != stored.revision:
            document = msgspec.json.decode(stored.value)
            annotations = document["metadata"].get("annotations") or {}
            rules = NamespaceRules(
                stored.revision,
                policy_of(document),
                confinement.read_confinement(annotations)[0],
            )
            self._rules[namespace] = rules
        return rules

    def _review_pods(self, rules: NamespaceRules, kind: Kind, doc: Document) -> list[str]:
        """Return the warnings of Pod Security about a Pod or template. Raises Forbidden for a Pod
        that violates the level."""
        policy = rules.pod_security
        if noted():
            _note_violations(policy, kind, doc)
        if kind.resource == PODS:
            if refusal := pod_refusal(policy, doc):
                raise self._count_refusal("PodSecurity", kind, doc, refusal)
            found = pod_warning(policy, doc)
        else:
            template = template_of(kind.resource, doc)
            found = "" if template is None else pod_warning(policy, template)
        return [found] if found else []

    def _count_refusal(
        self, plugin: AdmissionPlugin, kind: Kind, doc: Document, why: str
    ) -> Forbidden:
        """Count a rejection by the plugin and return its error."""
        self.denied[plugin] += 1
        return refused(kind.resource, doc["metadata"].get("name", ""), why)


def _note_violations(policy: Policy, kind: Kind, doc: Document) -> None:
    """Record Pod Security violations as audit annotations."""
    if kind.resource == PODS:
        note(f"{PREFIX}enforce-policy", str(policy.enforce))
    pod = doc if kind.resource == PODS else template_of(kind.resource, doc)
    if pod is not None and (found := pod_audit(policy, pod)):
        note(f"{PREFIX}audit-violations", found)


def annotation_errors(new: Document, old: Document | None) -> list[FieldError]:
    """Return errors for invalid confinement annotations.

    Errors that `old` has as well are tolerated.
    """
    errors = confinement.read_confinement(new["metadata"].get("annotations") or {})[1]
    if not errors or old is None:
        return errors
    before = confinement.read_confinement(old["metadata"].get("annotations") or {})[1]
    return [] if errors == before else errors


def refused(resource: str, name: str, why: str) -> Forbidden:
    """Return the Forbidden error of an admission rejection."""
    plural, _, group = resource.partition(".")
    details = {"name": name} if name else {}
    if group:
        details["group"] = group
    details["kind"] = plural
    return Forbidden(f'{resource} "{name}" is forbidden: {why}', details=details)
