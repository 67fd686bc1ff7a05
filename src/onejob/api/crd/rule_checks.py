"""Type checks and cost estimates of a schema's CEL rules. Pure functions."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from onejob.api.crd.rules import RuleSet, ValidationRule, check_rules
from onejob.api.crd.structural import LIST_TYPE, MAP_TYPE, RULES, Node, children
from onejob.api.crd.values import UNRELATED, within
from onejob.cel import (
    ESTIMATE_LIMIT,
    CompileError,
    Type,
    WrongResult,
    declare,
    max_cardinality,
)
from onejob.wire.field_errors import FieldError, forbidden, invalid, not_supported, required

#: Limit of the estimated total cost of all rules of a schema.
SCHEMA_LIMIT: Final = 100_000_000
_REASONS: Final = [
    "FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired",
]  # fmt: skip
_MAX_REPORTED_RULES: Final = 4
#: One step of a fieldPath: `.name` or `['name']`.
_STEP: Final = re.compile(r"\.(?P<name>[^.\[\]]+)|\['(?P<quoted>(?:[^'\\]|\\.)*)'\]")


@dataclass(slots=True)
class _Totals:
    """Estimated cost of all rules of a schema, and of each."""

    cost: int = 0
    rules: list[tuple[int, str]] = field(default_factory=list)

    def add(self, cost: int, path: str) -> None:
        """Add the cost of the rule at `path`."""
        self.cost += cost
        self.rules.append((cost, path))


def check_schema_rules(schema: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    totals = _Totals()
    yield from _check(schema, path, 1, "", totals, root=True)
    if totals.cost > SCHEMA_LIMIT:
        dearest = sorted(totals.rules, key=lambda rule: -rule[0])[:_MAX_REPORTED_RULES]
        for _, place in dearest:
            text = (
                "contributed to estimated rule cost total exceeding cost limit for entire "
                "OpenAPIv3 schema"
            )
            yield forbidden(place, text)
        what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
        yield forbidden(path, _over_budget_message(what, totals.cost, SCHEMA_LIMIT))


def check_defaults_by_rules(schema: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    """Yield errors of defaults that violate the rules, evaluated both as new and as unchanged
    values."""
    default = schema.get("default")
    if default is not None:
        rules = RuleSet(Node(schema))
        errors: list[FieldError] = []
        for old in (default, UNRELATED):
            if not errors:
                check_rules(rules, default, old, errors)
        yield from (within(error, f"{path}.default") for error in errors)
    for place, below in children(schema, path):
        yield from check_defaults_by_rules(below, place)


def _check(
    schema: Mapping[str, Any],
    path: str,
    cardinality: int | None,
    uncorrelated: str,
    totals: _Totals,
    *,
    root: bool = False,
) -> Iterator[FieldError]:
    """Yield the errors of all rules in `schema`, and add their costs to `totals`.

    `cardinality` is the maximum number of values with this schema, or None if it is unbounded.
    `uncorrelated` is the path below which old values cannot be matched to new ones; "" if they can.
    """
    for name, below in (schema.get("properties") or {}).items():
        lost = uncorrelated or (path if schema.get(MAP_TYPE) == "atomic" else "")
        yield from _check(below, f"{path}.properties[{name}]", cardinality, lost, totals)
    for member, limit in (("additionalProperties", "maxProperties"), ("items", "maxItems")):
        below = schema.get(member)
        if isinstance(below, Mapping):
            many = schema.get(limit)
            count = None if cardinality is None or many is None else cardinality * many
            alone = member == "items" and schema.get(LIST_TYPE) != "map"
            lost = uncorrelated or (path if alone else "")
            yield from _check(below, f"{path}.{member}", count, lost, totals)
    if not schema.get(RULES):
        return
    declared = declare(schema, resource_root=root)
    for index, raw in enumerate(schema[RULES]):
        place = f"{path}.{RULES}[{index}]"
        problems = [*_check_texts(raw, place), *_check_field_path(raw, schema, place)]
        yield from problems
        if problems or declared is None:
            continue
        count = cardinality if cardinality is not None else max_cardinality(declared)
        yield from _check_rule(raw, place, declared, count, uncorrelated, totals)


def _as_in_go(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return a rule as upstream's errors print it: with the field names of the Go struct."""
    return {
        "Rule": raw.get("rule") or "",
        "Message": raw.get("message") or "",
        "MessageExpression": raw.get("messageExpression") or "",
        "Reason": raw.get("reason"),
        "FieldPath": raw.get("fieldPath") or "",
        "OptionalOldSelf": raw.get("optionalOldSelf"),
    }


def _check_texts(raw: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    rule, message = (raw.get("rule") or "").strip(), raw.get("message") or ""
    if not rule:
        yield required(f"{path}.rule", "rule is not specified")
    elif message and not message.strip():
        yield invalid(f"{path}.message", message, "must be non-empty if specified")
    elif "\n" in message.strip():
        yield invalid(f"{path}.message", message, "must not contain line breaks")
    elif "\n" in rule and not message:
        text = "message must be specified if rule contains line breaks"
        yield required(f"{path}.message", text)
    expression = raw.get("messageExpression") or ""
    if expression and not expression.strip():
        text = "messageExpression must be non-empty if specified"
        yield required(f"{path}.messageExpression", text)
    if raw.get("reason") and raw["reason"] not in _REASONS:
        yield not_supported(f"{path}.reason", raw["reason"], _REASONS)


def _check_field_path(
    raw: Mapping[str, Any], schema: Mapping[str, Any], path: str
) -> Iterator[FieldError]:
    given = raw.get("fieldPath") or ""
    if not given:
        return
    place = f"{path}.fieldPath"
    if not given.strip():
        yield invalid(place, given, "must be non-empty if specified")
    if "\n" in given:
        yield invalid(place, given, "must not contain line breaks")
    if not _leads_to_a_field(given, schema):
        yield invalid(place, given, "must be a valid path")


def _leads_to_a_field(path: str, schema: Mapping[str, Any]) -> bool:
    """Return whether `.a['b']` names a field below the schema. List items cannot be named."""
    end = 0
    below: Any = schema
    for step in _STEP.finditer(path):
        if step.start() != end:
            return False
        end = step.end()
        name = step["name"] or _unescaped(step["quoted"])
        if below.get("properties"):
            below = below["properties"].get(name)
        else:
            below = below.get("additionalProperties")
        if not isinstance(below, Mapping):
            return False
    return end == len(path)


def _unescaped(text: str) -> str:
    """Return a text with its backslash escapes removed."""
    return re.sub(r"\\(.)", r"\1", text)


def _check_rule(
    raw: Mapping[str, Any],
    path: str,
    declared: Type,
    cardinality: int,
    uncorrelated: str,
    totals: _Totals,
) -> Iterator[FieldError]:
    """Yield the errors of a rule, and add its estimated cost to `totals`."""
    try:
        rule = ValidationRule({**raw, "messageExpression": ""}, declared)
    except WrongResult as error:
        yield invalid(f"{path}.rule", _as_in_go(raw), str(error))
        return
    except CompileError as error:
        yield invalid(f"{path}.rule", _as_in_go(raw), f"compilation failed: {error}")
        return
    cost = rule.program.estimated_cost * cardinality
    totals.add(cost, f"{path}.rule")
    if cost > ESTIMATE_LIMIT:
        text = _over_budget_message("estimated rule cost", cost, ESTIMATE_LIMIT)
        yield forbidden(f"{path}.rule", text)
    if rule.transition and uncorrelated:
        text = (
            "oldSelf cannot be used on the uncorrelatable portion of the schema within "
            f"{uncorrelated}"
        )
        yield invalid(f"{path}.rule", raw["rule"], text)
    if not rule.transition and raw.get("optionalOldSelf") is not None:
        text = "may not be set if oldSelf is not used in rule"
        yield invalid(f"{path}.optionalOldSelf", raw["optionalOldSelf"], text)
    yield from _check_message(raw, path, declared, totals)


def _check_message(
    raw: Mapping[str, Any], path: str, declared: Type, totals: _Totals
) -> Iterator[FieldError]:
    """Yield the errors of a rule's messageExpression, and add its estimated cost to `totals`."""
    if not raw.get("messageExpression"):
        return
    place = f"{path}.messageExpression"
    try:
        program = ValidationRule({**raw, "rule": "true"}, declared).message_program
    except WrongResult as error:
        yield invalid(place, _as_in_go(raw), str(error))
        return
    except CompileError as error:
        text = f"messageExpression compilation failed: {error}"
        yield invalid(place, _as_in_go(raw), text)
        return
    assert program is not None
    totals.add(program.estimated_cost, place)
    if program.estimated_cost > ESTIMATE_LIMIT:
        text = _over_budget_message(
            "estimated messageExpression cost", program.estimated_cost, ESTIMATE_LIMIT
        )
        yield forbidden(place, text)


def _over_budget_message(what: str, cost: int, limit: int) -> str:
    factor = cost / limit
    if factor > 100:
        shown = "more than 100x"
    else:
        shown = f"{factor:f}x" if factor < 1.5 else f"{factor:.1f}x"
    return (
        f"{what} exceeds budget by factor of {shown} (try simplifying the rule, or adding "
        "maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
    )
