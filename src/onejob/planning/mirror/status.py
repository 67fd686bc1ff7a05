"""Status of a mirrored Job, derived from its copy.

The result passes the validation of the local API server regardless of the remote status and of
updates missed in between.
"""

from datetime import datetime
from typing import Any, Final

from onejob.planning.mirror import names

Status = dict[str, Any]
_Condition = dict[str, Any]

_FINISHED: Final = ("Complete", "Failed")
#: Condition that must accompany each terminal condition.
_TARGETS: Final = {"Complete": "SuccessCriteriaMet", "Failed": "FailureTarget"}
_STICKY: Final = ("SuccessCriteriaMet", "FailureTarget", "Complete", "Failed")


def mirrored_status(spec: dict[str, Any], old: Status, remote: Status, now: datetime) -> Status:
    """Return the local status for the copy's status.

    The MirrorReady condition is kept as it was.
    """
    conditions = _conditions(spec, old, remote)
    status = _counts(spec, old, remote)
    start = _start_time(spec, old, remote, conditions)
    finish = next(
        (one for one in conditions if _is_true(one) and one.get("type") in _FINISHED), None
    )
    if finish is not None:
        ended = remote.get("completionTime") or finish.get("lastTransitionTime") or time_text(now)
        exempt = spec.get("suspend") is True and spec.get("completions") == 0
        start = start or (None if exempt else ended)
        if finish.get("type") == "Complete":
            # Clocks differ between clusters.
            status["completionTime"] = old.get("completionTime") or max(ended, start or ended)
    if start is not None:
        status["startTime"] = start
    status["conditions"] = conditions + [
        one for one in old.get("conditions", ()) if one.get("type") == names.READY
    ]
    return status


def _counts(spec: dict[str, Any], old: Status, remote: Status) -> Status:
    """Return the counters of the status; they stay within the bounds that the local API
    enforces."""
    status: Status = {}
    active = remote.get("active") or 0
    counts = {"active": active}
    for field in ("ready", "terminating"):
        if remote.get(field) is not None:
            counts[field] = min(remote[field], active) if field == "ready" else remote[field]
    indexed = spec.get("completionMode") == "Indexed"
    elastic = indexed and spec.get("completions") == spec.get("parallelism")
    for field in ("succeeded", "failed"):
        count = remote.get(field) or 0
        # A new copy counts from zero, but reported counts must not shrink.
        may_shrink = elastic and field == "succeeded"
        counts[field] = count if may_shrink else max(count, old.get(field) or 0)
    status.update(
        (field, n) for field, n in counts.items() if n or field in ("ready", "terminating")
    )
    if indexed and remote.get("completedIndexes"):
        status["completedIndexes"] = remote["completedIndexes"]
    if spec.get("backoffLimitPerIndex") is not None and remote.get("failedIndexes") is not None:
        status["failedIndexes"] = remote["failedIndexes"]
    return status


def _conditions(spec: dict[str, Any], old: Status, remote: Status) -> list[_Condition]:
    """Return the conditions of the copy, as the local API permits them."""
    there = {
        one.get("type"): one
        for one in remote.get("conditions") or ()
        if one.get("type") != names.READY
    }
    here = {one.get("type"): one for one in old.get("conditions") or ()}
    if spec.get("suspend") is not True and "Suspended" not in here:
        # Copies are suspended until they may start; the local Job is not affected by that.
        there.pop("Suspended", None)
    for finished, target in _TARGETS.items():
        if finished in there and _is_true(there[finished]) and target not in there:
            # Servers before 1.31 do not set this condition for all Jobs.
            there[target] = {**there[finished], "type": target}
    if _has_unfinished_pods(remote):
        for finished in _FINISHED:
            there.pop(finished, None)
    for kind in _STICKY:
        if kind in here and _is_true(here[kind]):
            there[kind] = here[kind]
    _keep_one_verdict(there, here)
    return list(there.values())


def _keep_one_verdict(there: dict[str, _Condition], here: dict[str, _Condition]) -> None:
    """Remove the conditions of the outcome that came second.

    A new copy may end differently from the outcome that the previous one announced; the first
    outcome stands. Conditions set by one server never contradict each other.
    """
    success, failure = ("SuccessCriteriaMet", "Complete"), ("FailureTarget", "Failed")
    failed_first = any(kind in here and _is_true(here[kind]) for kind in failure)
    succeeded_first = any(kind in here and _is_true(here[kind]) for kind in success)
    failing = any(kind in there and _is_true(there[kind]) for kind in failure)
    losers = success if failed_first or (failing and not succeeded_first) else failure
    for kind in losers:
        if kind in there and _is_true(there[kind]):
            del there[kind]


def _has_unfinished_pods(remote: Status) -> bool:
    uncounted = remote.get("uncountedTerminatedPods") or {}
    return bool(
        remote.get("active")
        or remote.get("terminating")
        or uncounted.get("succeeded")
        or uncounted.get("failed")
    )


def _start_time(
    spec: dict[str, Any], old: Status, remote: Status, conditions: list[_Condition]
) -> str | None:
    """Return the startTime. Once set it stays, except for Jobs that are or were suspended."""
    before, there = old.get("startTime"), remote.get("startTime")
    if not before or spec.get("suspend") is True or _resumes(old, conditions):
        return there
    return str(before)


def _resumes(old: Status, conditions: list[_Condition]) -> bool:
    """Return whether the conditions end a suspension."""
    was = any(
        one.get("type") == "Suspended" and _is_true(one) for one in old.get("conditions") or ()
    )
    return was and any(
        one.get("type") == "Suspended" and one.get("status") == "False" for one in conditions
    )


def failed_status(
    spec: dict[str, Any], old: Status, reason: str, message: str, now: datetime
) -> Status:
    """Return the final status of a Job whose copy is gone. An outcome already decided stands."""
    moment = time_text(now)
    end: Status = {**old, "active": 0, "ready": 0, "terminating": 0}
    end.pop("uncountedTerminatedPods", None)
    decided = {one.get("type"): one for one in old.get("conditions") or () if _is_true(one)}
    criteria, target = decided.get("SuccessCriteriaMet"), decided.get("FailureTarget")
    if criteria is not None:
        verdict = {**criteria, "type": "Complete", "lastTransitionTime": moment}
        extra = [verdict]
    elif target is not None:
        extra = [{**target, "type": "Failed", "lastTransitionTime": moment}]
    else:
        failure = {
            "status": "True",
            "reason": reason,
            "message": message,
            "lastProbeTime": moment,
            "lastTransitionTime": moment,
        }
        extra = [{"type": kind, **failure} for kind in ("FailureTarget", "Failed")]
    kinds = {one["type"] for one in extra}
    end["conditions"] = [
        one for one in old.get("conditions") or () if one.get("type") not in kinds
    ] + extra
    start = end.setdefault("startTime", moment)
    if criteria is not None:
        end["completionTime"] = max(moment, start)
    return end


def with_condition(
    status: Status, *, ready: bool, reason: str, message: str, now: datetime
) -> Status:
    """Return the status with MirrorReady set.

    Its lastTransitionTime changes only between True and False.
    """
    state = "True" if ready else "False"
    others = [one for one in status.get("conditions") or () if one.get("type") != names.READY]
    before = ready_condition(status)
    since = time_text(now)
    if before is not None and before.get("status") == state:
        since = before.get("lastTransitionTime", since)
    condition = {
        "type": names.READY,
        "status": state,
        "reason": reason,
        "message": message,
        "lastTransitionTime": since,
    }
    return {**status, "conditions": [*others, condition]}


def ready_condition(status: Status) -> _Condition | None:
    """Return the mirror's own condition; None if it is absent."""
    return next(
        (one for one in status.get("conditions") or () if one.get("type") == names.READY), None
    )


def _is_true(condition: _Condition) -> bool:
    return condition.get("status") == "True"


def time_text(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
