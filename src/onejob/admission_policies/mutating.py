"""The plugin MutatingAdmissionPolicy."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter

from msgspec import Struct

from onejob.admission_policies.definitions import (
    MUTATING,
    MUTATING_BINDINGS,
    Binding,
    MutatingPolicy,
    Mutation,
)
from onejob.admission_policies.params import ConfigurationError, collect_params
from onejob.admission_policies.patches import (
    MutationFailed,
    apply_configuration,
    apply_operations,
)
from onejob.admission_policies.plugins import (
    ErrorType,
    Policies,
    encoded_size,
    error_type,
    shown_name,
)
from onejob.api.admission.admission import ObservableStore, refused
from onejob.api.admission.dynamic.activation import (
    Authorize,
    OutOfBudget,
    Values,
    activation,
    with_variables,
)
from onejob.api.admission.dynamic.attributes import AdmissionRequest, Operation
from onejob.api.admission.dynamic.plugins import Review
from onejob.api.admission.dynamic.versions import Convert, in_version
from onejob.api.schema.schema import Schema, Type
from onejob.api.strategy import Document
from onejob.api.yielding import INLINE_BYTES
from onejob.cel.admission import POLICY_BUDGET
from onejob.cel.errors import EvaluationError
from onejob.cel.program import Budget
from onejob.metrics import Metrics, MutatingPolicyCheckLabels
from onejob.wire.errors import ApiError, Forbidden, InternalError
from onejob.wire.kinds import Kind
from onejob.wire.registry import KindRegistry


class _Invocation(Struct, frozen=True):
    """A policy with one of its bindings and one of the binding's params."""

    policy: MutatingPolicy
    binding: Binding
    version: Kind
    params: Document | None

    @property
    def key(self) -> tuple[str, str, str, str]:
        metadata = (self.params or {}).get("metadata") or {}
        place = (metadata.get("namespace", ""), metadata.get("name", ""))
        return (self.policy.name, self.binding.name, *place)


class _Problem(Struct, frozen=True):
    policy: MutatingPolicy
    #: "" if the policy itself could not be evaluated.
    binding: str
    message: str
    reason: str = ""

    def __str__(self) -> str:
        if self.binding:
            head = f"policy '{self.policy.name}' with binding '{self.binding}'"
        else:
            head = f'policy "{self.policy.name}"'
        return f"{head} denied request: {self.message}"


class MutatingPolicies(Policies[MutatingPolicy]):
    policy_resource = MUTATING
    binding_resource = MUTATING_BINDINGS

    def __init__(
        self,
        store: ObservableStore,
        kinds: KindRegistry,
        metrics: Metrics,
        convert: Convert,
        authorize: Authorize,
        read: Callable[[bytes], MutatingPolicy],
        schema: Schema,
    ) -> None:
        super().__init__(store, kinds, metrics, convert, authorize, read)
        self._schema = schema

    def concerns(self, operation: Operation, kind: Kind, subresource: str) -> bool:
        return operation != "DELETE" and super().concerns(operation, kind, subresource)

    async def admit(self, review: Review) -> None:
        """Apply the mutations of all matching policies, each to the result of the last."""
        if review.request.object is None:
            return
        problems: list[_Problem] = []
        invocations = await self._invocations(review.request, problems)
        if invocations:
            await self._invoke(review, invocations, problems)
        denied = [problem for problem in problems if not problem.policy.fails_open]
        if denied:
            raise _denied(review.request, denied)

    async def _invocations(
        self, request: AdmissionRequest, problems: list[_Problem]
    ) -> Sequence[_Invocation]:
        found: list[_Invocation] = []
        for bound in self._bound:
            policy = bound.policy
            try:
                version = self._policy_version(policy, request)
            except (ApiError, ConfigurationError) as error:
                problems.append(_Problem(policy, "", f"failed to configure policy: {error}"))
                continue
            if version is None:
                continue
            for binding in bound.bindings:
                try:
                    if self._binding_matches(binding, request):
                        params = await collect_params(
                            policy, binding, request, self._kinds, self._store, self._convert
                        )
                        found += [_Invocation(policy, binding, version, each) for each in params]
                except (ApiError, ConfigurationError) as error:
                    text = f"failed to configure binding: {error}"
                    problems.append(_Problem(policy, binding.name, text))
        return found

    async def _invoke(
        self, review: Review, invocations: Sequence[_Invocation], problems: list[_Problem]
    ) -> None:
        invoked: set[tuple[str, ...]] = review.memory.setdefault("policies invoked", set())
        again: set[tuple[str, ...]] = review.memory.setdefault("policies to reinvoke", set())
        if review.reinvoking and review.request.object != review.memory.get("policies output"):
            again |= invoked
        namespace = self._namespace_of(review.request)
        changed_any = False
        for invocation in invocations:
            policy, key = invocation.policy, invocation.key
            sent = await in_version(review.request, invocation.version, self._convert)
            values = self._values(invocation, sent, namespace)
            try:
                if not policy.conditions.hold(values, policy.variables):
                    continue
            except (EvaluationError, OutOfBudget) as error:
                text = str(error)
                problems.append(_Problem(policy, invocation.binding.name, text, "Invalid"))
                continue
            if review.reinvoking and key not in again:
                continue
            changed = False
            for mutation in policy.mutations:
                changed |= await self._mutate(review, invocation, mutation, namespace, problems)
            if changed:
                again |= invoked
                changed_any = True
            if policy.reinvocable:
                invoked.add(key)
        if changed_any:
            # As upstream: the last policy that changed the object is invoked again, too.
            again |= invoked
            review.must_reinvoke = True
        review.memory["policies output"] = review.request.object

    def _values(
        self, invocation: _Invocation, sent: AdmissionRequest, namespace: Document | None
    ) -> Values:
        return activation(
            sent,
            invocation.version,
            self._authorize,
            namespace=namespace,
            params=invocation.params,
            resource=invocation.version,
        )

    async def _mutate(
        self,
        review: Review,
        invocation: _Invocation,
        mutation: Mutation,
        namespace: Document | None,
        problems: list[_Problem],
    ) -> bool:
        """Apply one mutation, and return whether it changed the object."""
        policy = invocation.policy
        began = perf_counter()
        try:
            sent = await in_version(review.request, invocation.version, self._convert)
            values = self._values(invocation, sent, namespace)
            assert sent.object is not None, "admit requires an object"
            type_ = self._body_type(sent, invocation.version)
            run = partial(_patched, policy, mutation, sent.object, values, type_)
            if encoded_size(sent.object, sent.old_object) > INLINE_BYTES:
                patched = await asyncio.to_thread(run)
            else:
                patched = run()
            changed = await self._replace(review, sent.object, patched)
        except (EvaluationError, OutOfBudget, MutationFailed) as error:
            self._observe(invocation, error_type(str(error)), perf_counter() - began)
            name = invocation.binding.name
            problems.append(_Problem(policy, name, str(error), "Invalid"))
            return False
        except ApiError:
            self._observe(invocation, "invalid_error", perf_counter() - began)
            raise
        self._observe(invocation, "no_error", perf_counter() - began)
        return changed

    def _body_type(self, request: AdmissionRequest, version: Kind) -> Type:
        group, own_version, kind = request.body_kind
        chosen = own_version if version == request.request_kind else version.version
        api_version = f"{group}/{chosen}" if group else chosen
        return self._schema.kind(api_version, kind)

    async def _replace(self, review: Review, sent: Document, patched: Document) -> bool:
        if patched is sent:
            return False
        if any(patched.get(name) != sent.get(name) for name in ("apiVersion", "kind")):
            raise InternalError(
                "Internal error occurred: the patch changes apiVersion or kind of the object"
            )
        if sent is not review.request.object:
            (patched,) = await self._convert((patched,), review.request.kind)
        return review.replace_object(patched)

    def _observe(self, invocation: _Invocation, found: ErrorType, seconds: float) -> None:
        labels = MutatingPolicyCheckLabels(
            policy=invocation.policy.name,
            policy_binding=invocation.binding.name,
            error_type=found,
        )
        self._metrics.mutating_policy_checks.inc(**labels)
        self._metrics.mutating_policy_duration.observe(seconds, **labels)


def _patched(
    policy: MutatingPolicy, mutation: Mutation, document: Document, values: Values, type_: Type
) -> Document:
    """Return the object after one mutation.

    Raises EvaluationError, OutOfBudget or MutationFailed.
    """
    expression = mutation.expression
    if isinstance(expression.program, str):
        raise EvaluationError(expression.program)
    budget = Budget(POLICY_BUDGET)
    value = expression.evaluate(with_variables(values, policy.variables, budget), budget)
    if mutation.patch_type == "JSONPatch":
        return apply_operations(document, value, type_, strict=type_.go_written)
    return apply_configuration(document, value, type_)


def _denied(request: AdmissionRequest, problems: Sequence[_Problem]) -> ApiError:
    details = refused(request.kind.resource, shown_name(request), "").details
    error = Forbidden(str(problems[0]), details=details)
    if problems[0].reason:
        error.reason = problems[0].reason
    error.details["causes"] = [{"message": str(problem)} for problem in problems]
    return error
