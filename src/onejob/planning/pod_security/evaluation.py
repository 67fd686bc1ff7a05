"""Evaluation of a Pod Security level and version, for one Pod or all Pods of a namespace."""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final

from onejob.planning.pod_security.baseline import BASELINE_CHECKS
from onejob.planning.pod_security.labels import BASELINE, PRIVILEGED, LevelVersion, Policy, stricter
from onejob.planning.pod_security.restricted import OVERRIDES, RESTRICTED_CHECKS
from onejob.planning.pod_security.violations import Annotations, Check, Spec, Violation

#: Minor version with the newest check; all later versions are identical.
_NEWEST: Final = max(
    minor
    for checks in (BASELINE_CHECKS, RESTRICTED_CHECKS)
    for versions in checks.values()
    for minor, _ in versions
)
#: Maximum number of Pods checked when the level of a namespace changes.
MAX_PODS_CHECKED: Final = 3000


def violations(level: LevelVersion, annotations: Annotations, spec: Spec) -> list[Violation]:
    """Return the violations of the level; a version newer than all known counts as the newest."""
    minor = _NEWEST if level.minor is None else min(level.minor, _NEWEST)
    answers = (check(annotations, spec) for check in _checks(level.level, minor))
    return [answer for answer in answers if answer is not None]


def explained(found: Iterable[Violation]) -> str:
    """Return the violations as one text."""
    return ", ".join(map(str, found))


def refusal(policy: Policy, annotations: Annotations, spec: Spec) -> str:
    """Return why a Pod may not be created; "" if it may."""
    found = violations(policy.enforce, annotations, spec)
    return f'violates PodSecurity "{policy.enforce}": {explained(found)}' if found else ""


def warning(level: LevelVersion, annotations: Annotations, spec: Spec) -> str:
    """Return the warning about a Pod; "" if it violates nothing."""
    found = violations(level, annotations, spec)
    return f'would violate PodSecurity "{level}": {explained(found)}' if found else ""


def may_reject_running_pods(new: Policy, old: Policy) -> bool:
    """Return whether a changed policy may reject Pods that are already running."""
    if new.enforce == old.enforce or new.enforce.level == PRIVILEGED:
        return False
    return new.enforce.minor != old.enforce.minor or stricter(new.enforce.level, old.enforce.level)


def existing_warnings(
    namespace: str,
    level: LevelVersion,
    pods: Sequence[tuple[str, Annotations, Spec]],
    total: int,
) -> list[str]:
    """Return warnings about existing Pods that the new level would reject.

    `pods` holds (name, annotations, spec) of the Pods checked, out of `total`.
    """
    names: dict[str, list[str]] = {}
    for name, annotations, spec in pods:
        found = violations(level, annotations, spec)
        if found:
            names.setdefault(", ".join(violation.reason for violation in found), []).append(name)
    said = []
    if len(pods) < total:
        said.append(
            "new PodSecurity enforce level only checked against the first "
            f"{len(pods)} of {total} existing pods"
        )
    if names:
        said.append(
            f'existing pods in namespace "{namespace}" violate the new PodSecurity enforce level '
            f'"{level}"'
        )
    return said + sorted(f"{_first_of(who)}: {what}" for what, who in names.items())


def _first_of(names: list[str]) -> str:
    others = len(names) - 1
    if not others:
        return names[0]
    return f"{min(names)} (and {others} other pod{'s' if others > 1 else ''})"


@lru_cache(maxsize=256)
def _checks(level: str, minor: int) -> Sequence[Check]:
    """Return the checks of a level in a version, from a cache."""
    if level == PRIVILEGED:
        return ()
    baseline = _in_version(BASELINE_CHECKS, minor)
    if level == BASELINE:
        return tuple(baseline.values())
    restricted = _in_version(RESTRICTED_CHECKS, minor)
    overridden = {OVERRIDES[name] for name in restricted if name in OVERRIDES}
    kept = [check for name, check in baseline.items() if name not in overridden]
    return (*kept, *restricted.values())


def _in_version(
    checks: Mapping[str, tuple[tuple[int, Check], ...]], minor: int
) -> dict[str, Check]:
    """Return by name the checks of a minor version, each in the newest form that applies."""
    found = {
        name: [check for since, check in versions if since <= minor]
        for name, versions in checks.items()
    }
    return {name: versions[-1] for name, versions in found.items() if versions}
