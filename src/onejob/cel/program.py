"""Compiled expressions, and their evaluation within a cost budget."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from onejob.cel.ast import Identifier, Node, Select, children, qualified_name
from onejob.cel.check import check
from onejob.cel.compile import Code, compile_tree
from onejob.cel.costs import PER_CALL_LIMIT, PER_OBJECT_LIMIT
from onejob.cel.errors import CompileError, CostLimitExceeded, Issue, WrongResult, issue_at
from onejob.cel.estimate import estimate_cost
from onejob.cel.operations import FIRST_VARIABLE, Frame
from onejob.cel.parser import DEEPEST_TREE, parse
from onejob.cel.types import Type, optional_of
from onejob.cel.values import NONE, OptionalValue


@dataclass(slots=True)
class Budget:
    """Remaining cost of all evaluations for one object."""

    remaining: int = PER_OBJECT_LIMIT

    @property
    def exhausted(self) -> bool:
        return self.remaining < 0


@dataclass(frozen=True, slots=True)
class Program:
    """Compiled and type-checked CEL expression.

    Immutable: it may be evaluated any number of times, and each evaluation has its own variables
    and cost. `type` is the checked type of the result.
    """

    source: str
    type: Type
    variables: Mapping[str, Type]
    #: Variables that occur in the expression.
    used: frozenset[str]
    #: Maximum cost of an evaluation, if the values obey the schema.
    estimated_cost: int
    _code: Code = field(repr=False)

    def evaluate(self, values: Mapping[str, Any], budget: Budget | None = None) -> Any:
        """Evaluate the expression and return its value.

        An optional variable is passed as a plain value, or omitted. The cost is subtracted from
        `budget`, also after an error.

        Raises:
            EvaluationError: if the expression has no value for these variables.
            CostLimitExceeded: if the evaluation costs more than PER_CALL_LIMIT.
            LookupError: if a variable of the expression is missing.
        """
        frame: Frame = [0] * self._code.frame_size
        frame[0] = self._code.cost
        frame[1] = PER_CALL_LIMIT
        for slot, (name, declared) in enumerate(self.variables.items(), FIRST_VARIABLE):
            if declared.kind == "optional":
                frame[slot] = OptionalValue(True, values[name]) if name in values else NONE
            elif name in values:
                frame[slot] = values[name]
            elif name in self.used:
                raise LookupError(f"the expression needs the variable {name}")
        try:
            return self._code.step(frame)
        except CostLimitExceeded:
            # A function may detect in advance that it would exceed the limit.
            frame[0] = max(frame[0], frame[1] + 1)
            raise
        finally:
            if budget is not None:
                budget.remaining -= frame[0]


def rule_variables(self_type: Type, *, optional_old_self: bool = False) -> dict[str, Type]:
    """Return the variables of a validation rule for values of this type: self and oldSelf."""
    old = optional_of(self_type) if optional_old_self else self_type
    return {"self": self_type, "oldSelf": old}


def compile_expression(
    source: str, variables: Mapping[str, Type], *, patches: bool = False
) -> Program:
    """Compile an expression. Raises CompileError with the first syntax error or all type errors.

    `patches` declares the types `Object` and `JSONPatch`, and functions to build patches.
    """
    try:
        tree = parse(source)
        result = check(source, tree, variables, patches=patches)
        code = compile_tree(tree, list(variables))
        cost = estimate_cost(tree, variables)
    except RecursionError:
        # Only if the caller's own stack is already deep: the parser bounds the depth.
        message = f"expression recursion limit exceeded: {DEEPEST_TREE}"
        raise CompileError([issue_at(source, 0, message)]) from None
    used = frozenset(_names(tree)) & variables.keys()
    return Program(source, result, dict(variables), used, cost, code)


def compile_rule(source: str, variables: Mapping[str, Type]) -> Program:
    """Compile a validation rule. Raises WrongResult if its result is not a bool."""
    return _of_kind(compile_expression(source, variables), "bool", "cel expression")


def compile_message(source: str, variables: Mapping[str, Type]) -> Program:
    """Compile a messageExpression. Raises WrongResult if its result is not a string."""
    program = compile_expression(source, variables)
    return _of_kind(program, "string", "messageExpression")


def _of_kind(program: Program, kind: str, what: str) -> Program:
    if program.type.kind == kind:
        return program
    message = f"{what} must evaluate to a {kind}"
    raise WrongResult([Issue(message)])


def _names(root: Node) -> set[str]:
    found = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, (Identifier, Select)) and (name := qualified_name(node)) is not None:
            found.add(name)
        waiting.extend(children(node))
    return found
