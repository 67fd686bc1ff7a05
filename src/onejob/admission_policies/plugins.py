"""Common part of the plugins ValidatingAdmissionPolicy and MutatingAdmissionPolicy."""

from collections.abc import Callable, Sequence
from typing import Generic, Literal, TypeAlias

import msgspec

from onejob.admission_policies.definitions import Binding, Bound, P, read_binding
from onejob.admission_policies.params import param_kind
from onejob.api.admission.admission import ObservableStore
from onejob.api.admission.dynamic.activation import Authorize
from onejob.api.admission.dynamic.attributes import AdmissionRequest, Operation
from onejob.api.admission.dynamic.matching import Attempt, namespace_object
from onejob.api.admission.dynamic.versions import Convert, other_versions
from onejob.api.strategy import Document
from onejob.metrics import Metrics
from onejob.objects.meta import NAMESPACES
from onejob.store.base import Change
from onejob.wire.kinds import Kind
from onejob.wire.registry import KindRegistry

ErrorType: TypeAlias = Literal["compile_error", "invalid_error", "no_error", "out_of_budget"]


class Policies(Generic[P]):
    """Policies of one kind with their bindings, ordered by name."""

    #: Resource names of the policies and of the bindings.
    policy_resource: str
    binding_resource: str

    def __init__(
        self,
        store: ObservableStore,
        kinds: KindRegistry,
        metrics: Metrics,
        convert: Convert,
        authorize: Authorize,
        read: Callable[[bytes], P],
    ) -> None:
        self.resources = frozenset((self.policy_resource, self.binding_resource))
        self._store = store
        self._kinds = kinds
        self._metrics = metrics
        self._convert = convert
        self._authorize = authorize
        self._read = read
        self._policies: dict[str, P] = {}
        self._bindings: dict[str, Binding] = {}
        self._bound: Sequence[Bound[P]] = ()
        self._concerned: dict[tuple[str, Kind, str], bool] = {}
        kinds.subscribe(lambda _: self._concerned.clear())

    @property
    def active(self) -> bool:
        return bool(self._bound)

    def staged(self, change: Change) -> None:
        name = change.key.name
        if change.key.resource == self.binding_resource:
            self._bindings.pop(name, None)
            if change.value is not None:
                self._bindings[name] = read_binding(change.value)
        else:
            self._policies.pop(name, None)
            if change.value is not None:
                self._policies[name] = self._read(change.value)
        self._bind()

    def reload(self) -> None:
        self._policies = {
            name: self._read(value)
            for name, value in self._store.newest_in(self.policy_resource, "")
            if value is not None
        }
        self._bindings = {
            name: read_binding(value)
            for name, value in self._store.newest_in(self.binding_resource, "")
            if value is not None
        }
        self._bind()

    def concerns(self, operation: Operation, kind: Kind, subresource: str) -> bool:
        place = (operation, kind, subresource)
        found = self._concerned.get(place)
        if found is None:
            attempt = Attempt(operation, kind, subresource, other_versions(self._kinds, kind))
            found = self._concerned[place] = any(
                bound.policy.match.may_match(attempt) for bound in self._bound
            )
        return found

    def _bind(self) -> None:
        self._concerned.clear()
        bindings: dict[str, list[Binding]] = {}
        for _, binding in sorted(self._bindings.items()):
            bindings.setdefault(binding.policy, []).append(binding)
        self._bound = [
            Bound(policy, tuple(bindings[name]))
            for name, policy in sorted(self._policies.items())
            if name in bindings
        ]

    def _policy_version(self, policy: P, request: AdmissionRequest) -> Kind | None:
        """Return the version in which a policy matches. Raises ApiError or ConfigurationError."""
        others = other_versions(self._kinds, request.request_kind)
        version = policy.match.version_for(request, others, self._store)
        if version is not None and policy.param_kind is not None:
            param_kind(self._kinds, policy.param_kind)
        return version

    def _binding_matches(self, binding: Binding, request: AdmissionRequest) -> bool:
        if binding.match is None:
            return True
        others = other_versions(self._kinds, request.request_kind)
        return binding.match.version_for(request, others, self._store) is not None

    def _namespace_of(self, request: AdmissionRequest) -> Document | None:
        """Return the Namespace of a request; None for cluster-scoped kinds. Raises NotFound."""
        if request.kind.storage == NAMESPACES or not request.namespace:
            return None
        return namespace_object(self._store, request.namespace)


def shown_name(request: AdmissionRequest) -> str:
    """Return the name in an error message, of an object whose name may not be generated yet."""
    metadata = (request.object or {}).get("metadata") or {}
    return request.name or metadata.get("name") or metadata.get("generateName") or "Unknown"


def error_type(message: str) -> ErrorType:
    if message.startswith("compilation"):
        return "compile_error"
    if message.startswith("validation failed due to running out of cost budget"):
        return "out_of_budget"
    return "invalid_error"


def encoded_size(*documents: Document | None) -> int:
    return sum(len(msgspec.json.encode(document)) for document in documents if document)
