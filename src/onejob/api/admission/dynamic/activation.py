"""Values of the variables of admission expressions, and evaluation with upstream's errors."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, Final, TypeAlias

from msgspec import Struct

from onejob.api.admission.dynamic.attributes import AdmissionRequest
from onejob.api.strategy import Document
from onejob.cel.admission import AUTHORIZER, CONDITIONS_BUDGET, REQUEST_RESOURCE
from onejob.cel.errors import CompileError, CostLimitExceeded, EvaluationError
from onejob.cel.library.authorizer import AccessCheck, Authorizer, ResourceCheck
from onejob.cel.program import Budget, Program
from onejob.cel.values import LazyFields
from onejob.objects.meta import NAMESPACES
from onejob.wire.kinds import Kind
from onejob.wire.requests import User

#: Returns whether a user has access, and the reason.
Authorize: TypeAlias = Callable[[User, AccessCheck], tuple[bool, str]]
Values: TypeAlias = dict[str, Any]

_NAMESPACE_METADATA: Final = frozenset(
    (
        "name", "generateName", "uid", "resourceVersion", "generation", "creationTimestamp",
        "deletionTimestamp", "deletionGracePeriodSeconds", "labels", "annotations", "finalizers",
    )
)  # fmt: skip


class OutOfBudget(Exception):
    """The expressions of a policy cost more than their common budget."""

    def __init__(self) -> None:
        super().__init__(
            "validation failed due to running out of cost budget, no further validation rules "
            "will be run"
        )


class Expression(Struct, frozen=True):
    source: str
    #: The message of the error, if it does not compile.
    program: Program | str

    def evaluate(self, values: Values, budget: Budget) -> Any:
        """Return the expression's value. Raises EvaluationError or OutOfBudget."""
        if isinstance(self.program, str):
            raise EvaluationError(f"compilation error: {self.program}")
        try:
            return self.program.evaluate(values, budget)
        except (EvaluationError, CostLimitExceeded) as error:
            raise EvaluationError(
                f"expression '{self.source}' resulted in error: {error}"
            ) from error
        finally:
            if budget.exhausted:
                raise OutOfBudget


class MatchConditions(Struct, frozen=True):
    """matchConditions of a policy or webhook: all must hold."""

    expressions: tuple[Expression, ...] = ()

    def hold(self, values: Values, variables: Sequence[tuple[str, Expression]] = ()) -> bool:
        """Return whether all conditions are true. Raises EvaluationError or OutOfBudget.

        A condition that is false decides, even if others have errors.
        """
        if not self.expressions:
            return True
        budget = Budget(CONDITIONS_BUDGET)
        request = values["request"]
        # As upstream, conditions get neither the namespace nor the matched resource.
        request = {**request, "resource": request["requestResource"]}
        given = {**values, "request": request, "namespaceObject": None}
        values = with_variables(given, variables, budget)
        problems: list[str] = []
        for expression in self.expressions:
            try:
                if expression.evaluate(values, budget) is not True:
                    return False
            except EvaluationError as error:
                problems.append(str(error))
        if problems:
            several = list(dict.fromkeys(problems))
            raise EvaluationError(several[0] if len(several) == 1 else f"[{', '.join(several)}]")
        return True


def compiled(compile_source: Callable[[str], Program], source: str) -> Expression:
    """Compile an expression of a stored configuration.

    It may have an error, because a previous release accepted it.
    """
    try:
        return Expression(source, compile_source(source))
    except CompileError as error:
        return Expression(source, str(error))


def activation(
    request: AdmissionRequest,
    version: Kind,
    authorize: Authorize,
    *,
    namespace: Document | None = None,
    params: Document | None = None,
    resource: Kind | None = None,
) -> Values:
    """Return the values of all variables except `variables`.

    `version` is that of the objects in `request`. `resource` is the kind of `request.resource`;
    None means that of the request.
    """
    decide = cache(partial(_decide, authorize, request.user))
    check = AccessCheck(
        group=request.kind.group,
        resource=request.kind.plural,
        subresource=request.subresource,
        namespace=request_namespace(request),
        name=request.name,
    )
    return {
        "object": request.object,
        "oldObject": request.old_object,
        "request": _request_value(request, version, resource or request.request_kind),
        "namespaceObject": None if namespace is None else _namespace_value(namespace),
        "params": params,
        AUTHORIZER: Authorizer(decide, AccessCheck()),
        REQUEST_RESOURCE: ResourceCheck(decide, check),
    }


def with_variables(
    values: Values, variables: Sequence[tuple[str, Expression]], budget: Budget
) -> Values:
    """Return the values and `variables`, which are computed at their first use."""
    composed: Values = dict(values)
    composed["variables"] = LazyFields(
        {name: partial(_variable, name, each, composed, budget) for name, each in variables}
    )
    return composed


def _variable(name: str, expression: Expression, values: Values, budget: Budget) -> Any:
    """Return the value of a composited variable. Raises EvaluationError."""
    program = expression.program
    if isinstance(program, str):
        raise EvaluationError(f'composited variable "{name}" fails to compile: {program}')
    try:
        return program.evaluate(values, budget)
    except (EvaluationError, CostLimitExceeded) as error:
        raise EvaluationError(f'composited variable "{name}" fails to evaluate: {error}') from error


def request_namespace(request: AdmissionRequest) -> str:
    """Return the namespace of a request; that of a Namespace is itself."""
    return request.name if request.kind.storage == NAMESPACES else request.namespace


def _decide(authorize: Authorize, user: User, check: AccessCheck) -> tuple[bool, str]:
    if check.service_account is not None:
        namespace, name = check.service_account
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
        user = User(f"system:serviceaccount:{namespace}:{name}", groups=groups)
    return authorize(user, check)


def _request_value(request: AdmissionRequest, version: Kind, resource: Kind) -> Document:
    """Return the variable `request` of an expression."""
    group, own_version, kind = request.body_kind
    original = {"group": group, "version": own_version, "kind": kind}
    converted = {"group": version.group, "version": version.version, "kind": kind}
    optional = {
        "subResource": request.subresource,
        "requestSubResource": request.subresource,
        "name": request.name,
        "namespace": request_namespace(request),
        "options": request.options,
    }
    return {
        "kind": original if version == request.request_kind else converted,
        "resource": _resource_value(resource),
        "requestKind": original,
        "requestResource": _resource_value(request.request_kind),
        "operation": request.operation,
        "userInfo": user_info(request.user),
        "dryRun": request.dry_run,
        **{name: value for name, value in optional.items() if value},
    }


def _resource_value(kind: Kind) -> Document:
    return {"group": kind.group, "version": kind.version, "resource": kind.plural}


def user_info(user: User) -> Document:
    """Return a user as in the `userInfo` of a review."""
    info: Document = {"username": user.name}
    if user.uid:
        info["uid"] = user.uid
    if user.groups:
        info["groups"] = list(user.groups)
    if user.extra:
        info["extra"] = {name: list(values) for name, values in user.extra.items()}
    return info


def _namespace_value(document: Mapping[str, Any]) -> Document:
    metadata = {
        name: value for name, value in document["metadata"].items() if name in _NAMESPACE_METADATA
    }
    sections = {name: document.get(name) or {} for name in ("spec", "status")}
    return {"metadata": metadata, **sections}
