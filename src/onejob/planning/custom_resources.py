"""Status of a CustomResourceDefinition: accepted names and the Established condition."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TypeAlias

from msgspec import Struct, field

from onejob.wire.kinds import Kind

Definition: TypeAlias = Mapping[str, Any]

_APPROVAL: Final = "api-approved.kubernetes.io"


class NamesInUse(Struct, frozen=True):
    """Names used in an API group by everything except the definition in question."""

    resources: frozenset[str] = field(default_factory=frozenset)
    kinds: frozenset[str] = field(default_factory=frozenset)
    #: Names of built-in resources. A definition loses them even if it had them before the server
    #: did.
    built_in: frozenset[str] = field(default_factory=frozenset)


def names_in_use(group: str, others: Iterable[Definition], built_in: Iterable[Kind]) -> NamesInUse:
    """Return the names granted to other definitions and the names of built-in resources."""
    resources: set[str | None] = set()
    kinds: set[str | None] = set()
    for kind in built_in:
        if kind.group == group:
            resources |= {kind.plural, kind.singular, *kind.short_names}
            kinds |= {kind.kind, kind.list_kind}
    own = frozenset(filter(None, resources | kinds))
    for other in others:
        if other["spec"]["group"] == group:
            names = (other.get("status") or {}).get("acceptedNames") or {}
            resources |= {
                names.get("plural"), names.get("singular"), *(names.get("shortNames") or ())
            }  # fmt: skip
            kinds |= {names.get("kind"), names.get("listKind")}
    return NamesInUse(frozenset(filter(None, resources)), frozenset(filter(None, kinds)), own)


def planned_status(definition: Definition, in_use: NamesInUse, now: datetime) -> dict[str, Any]:
    """Return the desired status; equal to the current one if no update is needed."""
    status = dict(definition.get("status") or {})
    wanted = definition["spec"]["names"]
    accepted, conflict = _accepted(wanted, status.get("acceptedNames") or {}, in_use)
    conditions = list(status.get("conditions") or ())
    if conflict is None:
        fine = ("True", "NoConflicts", "no conflicts found")
        conditions = with_condition(conditions, "NamesAccepted", *fine, now)
    else:
        conditions = with_condition(conditions, "NamesAccepted", "False", *conflict, now)
    lost = _lost(accepted, in_use)
    if lost or not is_true({"status": {"conditions": conditions}}, "Established"):
        established = (
            ("True", "InitialNamesAccepted", "the initial names have been accepted")
            if conflict is None
            else ("False", "NotAccepted", "not all names are accepted")
        )
        conditions = with_condition(conditions, "Established", *established, now)
    approval = _approval_condition(definition)
    if approval is not None:
        condition = "KubernetesAPIApprovalPolicyConformant"
        conditions = with_condition(conditions, condition, *approval, now)
    return {**status, "acceptedNames": accepted, "conditions": conditions}


def _accepted(
    wanted: Mapping[str, Any], accepted: Mapping[str, Any], in_use: NamesInUse
) -> tuple[dict[str, Any], tuple[str, str] | None]:
    """Return the accepted names, and the (reason, message) of a conflict or None."""
    granted = {name: value for name, value in accepted.items() if value}
    conflict: tuple[str, str] | None = None
    # Only the last conflict is reported.
    for name in ("plural", "singular", "shortNames", "kind", "listKind"):
        used = in_use.kinds if name in ("kind", "listKind") else in_use.resources
        given, before = wanted.get(name), accepted.get(name)
        taken = _taken(given, before, used, in_use.built_in)
        if taken:
            texts = [f'"{each}" is already in use' for each in taken]
            text = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
            conflict = (f"{name[0].upper()}{name[1:]}Conflict", text)
        elif given:
            granted[name] = given
        else:
            granted.pop(name, None)
    if wanted.get("categories"):
        granted["categories"] = list(wanted["categories"])
    else:
        granted.pop("categories", None)
    granted.setdefault("plural", "")
    granted.setdefault("kind", "")
    return granted, conflict


def _taken(given: Any, before: Any, used: frozenset[str], built_in: frozenset[str]) -> list[str]:
    """Return the requested names, one or several, that are used elsewhere."""
    wanted = given if isinstance(given, list) else [given] if given else []
    own = before if isinstance(before, list) else [before]
    return [name for name in wanted if name in used and (name not in own or name in built_in)]


def _lost(accepted: Mapping[str, Any], in_use: NamesInUse) -> bool:
    """Return whether the plural or kind now belongs to a built-in resource.

    Neither name can be served for two resources.
    """
    return bool({accepted.get("plural"), accepted.get("kind")} & in_use.built_in)


def _approval_condition(definition: Definition) -> tuple[str, str, str] | None:
    """Return status, reason and message of the condition on API approval; None for a group that
    needs none."""
    group = definition["spec"]["group"]
    if not group.endswith((".k8s.io", ".kubernetes.io")):
        return None
    given = (definition["metadata"].get("annotations") or {}).get(_APPROVAL, "")
    if given.startswith("unapproved"):
        return "False", "UnapprovedAnnotation", f'not approved: "{given}"'
    return "True", "ApprovedAnnotation", f"approved in {given}"


def with_condition(
    conditions: Sequence[Mapping[str, Any]],
    kind: str,
    status: str,
    reason: str,
    message: str,
    now: datetime,
) -> list[Any]:
    """Return the conditions with this one set; lastTransitionTime changes only with its status."""
    before = next((entry for entry in conditions if entry.get("type") == kind), None)
    since = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    if before is not None and before.get("status") == status:
        since = before.get("lastTransitionTime", since)
    entry = {
        "type": kind, "status": status, "lastTransitionTime": since, "reason": reason,
        "message": message,
    }  # fmt: skip
    if before is None:
        return [*conditions, entry]
    return [entry if other is before else other for other in conditions]


def is_true(definition: Definition, condition: str) -> bool:
    """Return whether the definition has the condition with status True."""
    conditions = (definition.get("status") or {}).get("conditions") or ()
    return any(
        entry.get("type") == condition and entry.get("status") == "True" for entry in conditions
    )
