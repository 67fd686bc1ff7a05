"""The plugin ValidatingAdmissionPolicy."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from onejob.admission_policies.definitions import (
    VALIDATING,
    VALIDATING_BINDINGS,
    Binding,
    ValidatingPolicy,
    Validation,
)
from onejob.admission_policies.params import ConfigurationError, collect_params
from onejob.admission_policies.plugins import (
    ErrorType,
    Policies,
    encoded_size,
    error_type,
    shown_name,
)
from onejob.api.admission.admission import refused
from onejob.api.admission.dynamic.activation import (
    OutOfBudget,
    Values,
    activation,
    with_variables,
)
from onejob.api.admission.dynamic.attributes import AdmissionRequest
from onejob.api.admission.dynamic.plugins import Review
from onejob.api.admission.dynamic.versions import in_version
from onejob.api.yielding import INLINE_BYTES
from onejob.cel.admission import POLICY_BUDGET
from onejob.cel.errors import EvaluationError
from onejob.cel.program import Budget
from onejob.metrics import ValidatingPolicyCheckLabels
from onejob.store.base import Change
from onejob.wire.errors import ApiError

_MAX_MESSAGE_BYTES: Final = 5 * 1024
_MAX_ANNOTATION_BYTES: Final = 10 * 1024
#: Validation failures in one audit annotation.
_MAX_FAILURES: Final = 50
_FAILURES_NOTE: Final = "validation.policy.admission.k8s.io/validation_failure"
_CODES: Final = {
    "Forbidden": 403,
    "Unauthorized": 401,
    "RequestEntityTooLarge": 413,
    "Invalid": 422,
}


class Decision(Struct, frozen=True):
    """Result of one validation."""

    admitted: bool
    message: str = ""
    #: Whether an expression could not be evaluated.
    failed: bool = False
    reason: str = ""
    seconds: float = 0.0

    @property
    def error_type(self) -> ErrorType:
        return error_type(self.message) if self.failed else "no_error"


class Result(Struct, frozen=True):
    """Result of one policy for one request and params."""

    decisions: Sequence[Decision] = ()
    #: Audit annotations by key.
    annotations: Mapping[str, str] = {}
    #: Errors of audit annotations, which always deny.
    faults: Sequence[Decision] = ()


class _Denial(Struct, frozen=True):
    policy: str
    #: "" if the policy itself could not be evaluated.
    binding: str
    decision: Decision


class ValidatingPolicies(Policies[ValidatingPolicy]):
    policy_resource = VALIDATING
    binding_resource = VALIDATING_BINDINGS
    #: Called with the name of each new or changed policy.
    on_policy: Callable[[str], None] | None = None

    def staged(self, change: Change) -> None:
        super().staged(change)
        if change.key.resource == VALIDATING and change.value is not None:
            self._notify_changed(change.key.name)

    def reload(self) -> None:
        super().reload()
        for name in self._policies:
            self._notify_changed(name)

    def _notify_changed(self, name: str) -> None:
        """Call `on_policy`, if it is set, with the name of a policy."""
        if self.on_policy is not None:
            self.on_policy(name)

    async def admit(self, review: Review) -> None:
        """Evaluate all matching policies. The first denial, in their order, is raised."""
        outcome = _Outcome(review)
        for bound in self._bound:
            policy = bound.policy
            values: dict[str, dict[str, None]] = {}
            try:
                version = self._policy_version(policy, review.request)
            except (ApiError, ConfigurationError) as error:
                outcome.misconfigured(policy, "", str(error))
                continue
            if version is None:
                continue
            for binding in bound.bindings:
                try:
                    if not self._binding_matches(binding, review.request):
                        continue
                    params = await collect_params(
                        policy, binding, review.request, self._kinds, self._store, self._convert
                    )
                    sent = await in_version(review.request, version, self._convert)
                except (ApiError, ConfigurationError) as error:
                    outcome.misconfigured(policy, binding.name, str(error))
                    continue
                namespace = self._namespace_of(review.request)
                given = [
                    activation(
                        sent,
                        version,
                        self._authorize,
                        namespace=namespace,
                        params=each,
                        resource=version,
                    )
                    for each in params
                ]
                for result in await _evaluate_large_in_thread(policy, sent, given):
                    self._apply(outcome, policy, binding, result)
                    for key, text in result.annotations.items():
                        values.setdefault(key, {})[text] = None
            for key, texts in values.items():
                review.annotations[f"{policy.name}/{key}"] = ", ".join(texts)
        outcome.finish()

    def _apply(
        self, outcome: "_Outcome", policy: ValidatingPolicy, binding: Binding, result: Result
    ) -> None:
        for index, decision in enumerate(result.decisions):
            if decision.admitted:
                if decision.failed:
                    self._observe(policy, binding, decision, "allow")
                continue
            for action in binding.actions:
                match action:
                    case "Deny":
                        outcome.denials.append(_Denial(policy.name, binding.name, decision))
                        self._observe(policy, binding, decision, "deny")
                    case "Audit":
                        outcome.failures.append(_failure(policy, binding, index, decision))
                        self._observe(policy, binding, decision, "audit")
                    case _:
                        outcome.review.warnings.append(
                            f"Validation failed for ValidatingAdmissionPolicy '{policy.name}' with "
                            f"binding '{binding.name}': {decision.message}"
                        )
                        self._observe(policy, binding, decision, "warn")
        for fault in result.faults:
            outcome.denials.append(_Denial(policy.name, binding.name, fault))
            self._observe(policy, binding, fault, "deny")

    def _observe(
        self,
        policy: ValidatingPolicy,
        binding: Binding,
        decision: Decision,
        action: Literal["allow", "audit", "deny", "warn"],
    ) -> None:
        labels = ValidatingPolicyCheckLabels(
            policy=policy.name,
            policy_binding=binding.name,
            error_type=decision.error_type,
            enforcement_action=action,
        )
        self._metrics.validating_policy_checks.inc(**labels)
        self._metrics.validating_policy_duration.observe(decision.seconds, **labels)


class _Outcome:
    """Denials and failures of all policies for one request."""

    def __init__(self, review: Review) -> None:
        self.review = review
        self.denials: list[_Denial] = []
        self.failures: list[dict[str, Any]] = []

    def misconfigured(self, policy: ValidatingPolicy, binding: str, message: str) -> None:
        if not policy.fails_open:
            what = "binding" if binding else "policy"
            decision = Decision(False, f"failed to configure {what}: {message}")
            self.denials.append(_Denial(policy.name, binding, decision))

    def finish(self) -> None:
        """Record failures for the audit log, and raise the first denial."""
        if self.failures:
            shown = msgspec.json.encode(self.failures[:_MAX_FAILURES]).decode()
            self.review.annotations[_FAILURES_NOTE] = shown
        if self.denials:
            raise _denied(self.review.request, self.denials[0])


def _failure(
    policy: ValidatingPolicy, binding: Binding, index: int, decision: Decision
) -> dict[str, Any]:
    return {
        "message": decision.message,
        "policy": policy.name,
        "binding": binding.name,
        "expressionIndex": index,
        "validationActions": binding.actions,
    }


def _denied(request: AdmissionRequest, denial: _Denial) -> ApiError:
    binding = f" with binding '{denial.binding}'" if denial.binding else ""
    message = (
        f"ValidatingAdmissionPolicy '{denial.policy}'{binding} denied request: "
        f"{denial.decision.message}"
    )
    error = refused(request.kind.resource, shown_name(request), message)
    error.reason = denial.decision.reason or "Invalid"
    error.code = _CODES.get(error.reason, 422)
    error.details["causes"] = [{"message": message}]
    return error


async def _evaluate_large_in_thread(
    policy: ValidatingPolicy, request: AdmissionRequest, given: Sequence[Values]
) -> Sequence[Result]:
    """Evaluate a policy for each of its params; in a thread if the objects are large."""
    run = partial(_evaluate_all, policy, given)
    # As for writes: large objects must not hold up the event loop.
    if encoded_size(request.object, request.old_object) > INLINE_BYTES:
        return await asyncio.to_thread(run)
    return run()


def _evaluate_all(policy: ValidatingPolicy, given: Sequence[Values]) -> Sequence[Result]:
    return [evaluate(policy, values) for values in given]


def evaluate(policy: ValidatingPolicy, values: Values) -> Result:
    """Evaluate a policy for one request and params."""
    try:
        if not policy.conditions.hold(values, policy.variables):
            return Result()
        decisions = list(_decide(policy, values))
    except (EvaluationError, OutOfBudget) as error:
        return Result((Decision(policy.fails_open, str(error), failed=True),))
    return _annotate(policy, values, decisions)


class _Checked(Struct, frozen=True):
    """Value of a validation's expression."""

    value: Any = None
    error: str = ""
    seconds: float = 0.0


def _decide(policy: ValidatingPolicy, values: Values) -> Iterator[Decision]:
    """Evaluate validations, then messages. Raises OutOfBudget."""
    budget = Budget(POLICY_BUDGET)
    composed = with_variables(values, policy.variables, budget)
    results = [_check(validation, composed, budget) for validation in policy.validations]
    # Upstream evaluates variables again for messages, with the rest of the budget.
    composed = with_variables(values, policy.variables, budget)
    messages, problem = _messages(policy.validations, composed, budget)
    for index, (validation, result) in enumerate(zip(policy.validations, results, strict=True)):
        if result.error or problem:
            text = result.error or f"failed messageExpression: {problem}"
            yield Decision(policy.fails_open, text, failed=True, seconds=result.seconds)
        elif result.value is True:
            yield Decision(True, seconds=result.seconds)
        else:
            message = (
                _acceptable(messages[index])
                or validation.message.strip()
                or f"failed expression: {validation.condition.source.strip()}"
            )
            yield Decision(False, message, reason=validation.reason, seconds=result.seconds)


def _check(validation: Validation, values: Values, budget: Budget) -> _Checked:
    began = perf_counter()
    try:
        value = validation.condition.evaluate(values, budget)
        return _Checked(value, seconds=perf_counter() - began)
    except EvaluationError as error:
        return _Checked(error=str(error), seconds=perf_counter() - began)


def _messages(
    validations: Sequence[Validation], values: Values, budget: Budget
) -> tuple[list[Any], str]:
    """Return the values of messageExpressions, and the error if their budget does not suffice."""
    found: list[Any] = []
    for validation in validations:
        value = None
        if validation.message_expression is not None:
            try:
                value = validation.message_expression.evaluate(values, budget)
            except EvaluationError:
                # As upstream: the message is used instead.
                value = None
            except OutOfBudget as error:
                return found, str(error)
        found.append(value)
    return found, ""


def _acceptable(message: Any) -> str:
    """Return the message if it is a single line of limited length, else ""."""
    if not isinstance(message, str):
        return ""
    message = message.strip()
    return "" if len(message.encode()) > _MAX_MESSAGE_BYTES or "\n" in message else message


def _annotate(policy: ValidatingPolicy, values: Values, decisions: Sequence[Decision]) -> Result:
    budget = Budget(POLICY_BUDGET)
    composed = with_variables(values, policy.variables, budget)
    annotations: dict[str, str] = {}
    faults: list[Decision] = []
    for key, expression in policy.annotations:
        began = perf_counter()
        try:
            value = expression.evaluate(composed, budget)
        except EvaluationError as error:
            if not policy.fails_open:
                seconds = perf_counter() - began
                faults.append(Decision(False, str(error), failed=True, seconds=seconds))
            continue
        except OutOfBudget as error:
            return Result((Decision(policy.fails_open, str(error), failed=True),))
        text = (value or "").strip().encode()[:_MAX_ANNOTATION_BYTES].decode(errors="ignore")
        if text:
            annotations[key] = text
    return Result(decisions, annotations, faults)
