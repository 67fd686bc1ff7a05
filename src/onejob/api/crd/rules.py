"""CEL validation rules (`x-kubernetes-validations`) applied to custom objects."""

from collections.abc import Mapping
from typing import Any, Final

from onejob.api.crd.structural import MAP_TYPE, RULES, Node
from onejob.api.crd.values import UNRELATED, key_of, keyed_items
from onejob.api.schema.shapes import Path, render_path
from onejob.cel import (
    Budget,
    CompileError,
    CostLimitExceeded,
    EvaluationError,
    Program,
    Type,
    compile_message,
    compile_rule,
    declare,
    rule_variables,
)
from onejob.wire.field_errors import OMITTED, FieldError, invalid

_NO_BUDGET: Final = (
    "validation failed due to running out of cost budget, no further validation rules will be run"
)
_UNCHECKED: Final = (
    "some validation rules were not checked because the object was invalid; correct the existing "
    "errors to complete validation"
)
_BLOCKING: Final = frozenset(
    {
        "FieldValueNotSupported", "FieldValueRequired", "FieldValueTooLong", "FieldValueTooMany",
        "FieldValueTypeInvalid",
    }
)  # fmt: skip
_SCALARS: Final = frozenset({"string", "boolean", "integer", "number"})


class OutOfBudget(Exception):
    """The cost budget is exhausted; no further rule is evaluated for this object."""


class ValidationRule:
    """A compiled rule."""

    def __init__(self, raw: Mapping[str, Any], declared: Type) -> None:
        self.raw = raw
        self.optional = bool(raw.get("optionalOldSelf"))
        variables = rule_variables(declared, optional_old_self=self.optional)
        self.text: str = raw["rule"].strip()
        self.program: Program = compile_rule(raw["rule"], variables)
        self.transition = "oldSelf" in self.program.used
        expression = raw.get("messageExpression") or ""
        self.message_program = (
            compile_message(expression, rule_variables(declared)) if expression.strip() else None
        )

    @property
    def name(self) -> str:
        """Name of the rule in messages: its message, or its text."""
        return str(self.raw.get("message") or "").strip() or self.text

    def evaluate(self, values: Mapping[str, Any], budget: Budget) -> bool:
        """Return whether the values satisfy the rule. Raises EvaluationError; charges the
        budget."""
        return bool(self.program.evaluate(values, budget))

    def failure(self, values: Mapping[str, Any], budget: Budget) -> str:
        """Return the message for a violated rule."""
        if self.message_program is not None:
            try:
                text = str(self.message_program.evaluate(values, budget)).strip()
            except (EvaluationError, LookupError):
                text = ""
            if text and "\n" not in text and len(text) <= 5 * 1024:
                return text
        return str(self.raw.get("message") or "").strip() or f"failed rule: {self.text}"


class RuleSet:
    """Rules of a schema and of all nested schemas. Compiled when the first value is checked."""

    def __init__(self, node: Node, *, root: bool = False) -> None:
        self.node = node
        self._root = root
        self._rules: list[ValidationRule | str] | None = None
        self._made: dict[str, RuleSet] = {}

    def check(
        self, value: Any, old: Any, path: Path, errors: list[FieldError], budget: Budget
    ) -> None:
        """Append violations to `errors`.

        `old` is UNRELATED if no old value corresponds. Raises OutOfBudget.
        """
        if value is None or not self.node.has_rules:
            return
        if self.node.raw.get(RULES):
            self._evaluate_own_rules(value, old, path, errors, budget)
        if isinstance(value, dict):
            comparable = isinstance(old, dict) and self.node.raw.get(MAP_TYPE) != "atomic"
            for name, member in value.items():
                below = self._member(name)
                if below is not None:
                    before = old.get(name, UNRELATED) if comparable else UNRELATED
                    below.check(member, before, (path, name), errors, budget)
        elif isinstance(value, list) and self.node.items is not None:
            below = self._made.setdefault("[]", RuleSet(self.node.items))
            before = keyed_items(self.node, old) if isinstance(old, list) else {}
            for index, item in enumerate(value):
                previous = before.get(key_of(self.node, item), UNRELATED)
                below.check(item, previous, (path, index), errors, budget)

    def _member(self, name: str) -> "RuleSet | None":
        """Return the rules of a property, created on first use; None if the schema has no such
        property."""
        made = self._made.get(name)
        if made is None:
            node = self.node.property(name) or self.node.values
            if node is None:
                return None
            made = self._made[name] = RuleSet(node)
        return made

    def _compile_rules(self) -> list[ValidationRule | str]:
        """Compile the rules on first use; a rule that does not compile is kept as its error."""
        if self._rules is None:
            declared = declare(self.node.raw, resource_root=self._root)
            self._rules = []
            for raw in self.node.raw[RULES]:
                try:
                    assert declared is not None, "a rule on a value that rules cannot see"
                    self._rules.append(ValidationRule(raw, declared))
                except CompileError as error:
                    self._rules.append(f"rule compile error: {error}")
        return self._rules

    def _evaluate_own_rules(
        self, value: Any, old: Any, path: Path, errors: list[FieldError], budget: Budget
    ) -> None:
        """Evaluate the rules of this schema node on a value; add their errors to `errors`."""
        field = render_path(path) or "<nil>"
        kind = self.node.type
        unchanged = old is not UNRELATED and type(value) is type(old) and value == old
        values = {"self": value} if old is UNRELATED or old is None else {
            "self": value, "oldSelf": old
        }  # fmt: skip
        for rule in self._compile_rules():
            if isinstance(rule, str):
                errors.append(invalid(field, kind, rule))
                continue
            if rule.transition and "oldSelf" not in values and not rule.optional:
                continue
            if unchanged and not rule.transition:
                # Ratcheting: an unchanged value that was accepted before is not checked again.
                continue
            if budget.remaining <= 0:
                errors.append(invalid(field, kind, _NO_BUDGET))
                raise OutOfBudget
            try:
                holds = rule.evaluate(values, budget)
            except CostLimitExceeded as error:
                text = (
                    f"'{error}': no further validation rules will be run due to call cost exceeds "
                    f"limit for rule: {rule.name}"
                )
                errors.append(invalid(field, kind, text))
                raise OutOfBudget from None
            except EvaluationError as error:
                errors.append(invalid(field, kind, _evaluation_text(error, rule)))
                continue
            if budget.exhausted:
                errors.append(invalid(field, kind, _NO_BUDGET))
                raise OutOfBudget
            if not holds:
                errors.append(self._rule_error(rule, values, value, path, budget))

    def _rule_error(
        self,
        rule: ValidationRule,
        values: Mapping[str, Any],
        value: Any,
        path: Path,
        budget: Budget,
    ) -> FieldError:
        """Return the error of a rule that evaluated to false."""
        field = render_path(path)
        below = str(rule.raw.get("fieldPath") or "")
        place = (field + below if field else below.removeprefix(".")) or "<nil>"
        reason = rule.raw.get("reason") or "FieldValueInvalid"
        shown = value if self.node.type in _SCALARS else OMITTED
        return FieldError(reason, place, shown, rule.failure(values, budget))


def check_rules(rules: RuleSet, value: Any, old: Any, errors: list[FieldError]) -> None:
    """Evaluate all rules on an object, unless it already violates its schema."""
    if any(error.type in _BLOCKING for error in errors):
        errors.append(invalid("<nil>", None, _UNCHECKED))
        return
    try:
        rules.check(value, old, None, errors, Budget())
    except OutOfBudget:
        return


def _evaluation_text(error: EvaluationError, rule: ValidationRule) -> str:
    text = str(error)
    if text.startswith("no such overload"):
        return (
            f"'{text}': call arguments did not match a supported operator, function or macro "
            f"signature for rule: {rule.name}"
        )
    return f"{text} evaluating rule: {rule.name}"
