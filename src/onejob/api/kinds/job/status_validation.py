"""Validation of Job status updates.

Most rules apply only if the write changes a field or condition that they concern, so that a status
that was accepted once never blocks an unrelated update.
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

from msgspec import Struct

from onejob.api.kinds.metadata import validate_metadata_update
from onejob.api.strategy import Document
from onejob.planning.job.indexes import (
    IndexFormatError,
    check_no_overlap,
    validate_indexes,
)
from onejob.wire.field_errors import OMITTED, FieldError, duplicate, invalid, required

_COUNTERS: Final = ("active", "succeeded", "failed", "ready", "terminating")
_TERMINAL: Final = ("Failed", "Complete", "FailureTarget")
_FINISHED: Final = ("Complete", "Failed")
#: Conditions that rules concern.
_JUDGED: Final = frozenset({*_TERMINAL, "SuccessCriteriaMet"})


class Write:
    """One status write: old and new state, and their differences.

    Computed once, because all rules use the same few facts.
    """

    __slots__ = (
        "_true", "_was_true", "differs", "finish_changed", "finished", "new", "old",
        "old_status", "spec", "status",
    )  # fmt: skip

    def __init__(self, old: Document, new: Document) -> None:
        self.old, self.new = old, new
        self.spec: Mapping[str, Any] = new.get("spec", {})
        self.status: Mapping[str, Any] = new.get("status", {})
        self.old_status: Mapping[str, Any] = old.get("status", {})
        self._true = _true_conditions(self.status)
        self._was_true = _true_conditions(self.old_status)
        changed = {
            field
            for field in self.status.keys() | self.old_status.keys()
            if self.status.get(field) != self.old_status.get(field)
        }
        #: Fields that changed, and conditions that became or ceased to be true.
        self.differs = frozenset(changed | ((self._true ^ self._was_true) & _JUDGED))
        self.finished = not self._true.isdisjoint(_FINISHED)
        self.finish_changed = self.finished == self._was_true.isdisjoint(_FINISHED)

    @property
    def indexed(self) -> bool:
        """Whether the Job is Indexed."""
        return self.spec.get("completionMode") == "Indexed"

    def true(self, condition: str) -> bool:
        """Return whether the condition is true in the new state."""
        return condition in self._true

    def was_true(self, condition: str) -> bool:
        return condition in self._was_true

    def count_changed(self, field: str) -> bool:
        """Return whether a count changed; an absent count is zero."""
        return (self.status.get(field) or 0) != (self.old_status.get(field) or 0)


class StatusRule(Struct, frozen=True, eq=False):
    #: Description of the rejected status; unique.
    refuses: str
    #: Fields and conditions, one of which must have changed. Empty: the rule applies to any write.
    about: tuple[str, ...]
    check: Callable[[Write], Iterator[FieldError]]
    #: Additional condition for the rule to apply.
    applies: Callable[[Write], bool] | None = None


def validate_job_status_update(write: Write, rules: tuple[StatusRule, ...]) -> list[FieldError]:
    """Return the errors of a status write. `rules` are the result of `applicable_rules`."""
    errors = validate_metadata_update(write.new, write.old)
    errors += _validate_counters(write.status)
    errors += _validate_uncounted(write.status.get("uncountedTerminatedPods", {}))
    for rule in STATE_RULES:
        if rule in rules:
            errors += rule.check(write)
    errors += _validate_success_criteria(write)
    for rule in CHANGE_RULES:
        if rule in rules:
            errors += rule.check(write)
    return errors + list(_validate_success_criteria_change(write))


def applicable_rules(write: Write) -> tuple[StatusRule, ...]:
    rules = _rules_about(write.differs)
    return tuple([rule for rule in rules if rule.applies is None or rule.applies(write)])


@lru_cache(maxsize=64)
def _rules_about(differs: frozenset[str]) -> tuple[StatusRule, ...]:
    """Return the rules about the given differences.

    Cached: most writes during a Job's life change the same few fields.
    """
    return tuple(
        [
            rule
            for rule in (*STATE_RULES, *CHANGE_RULES)
            if not rule.about or not differs.isdisjoint(rule.about)
        ]
    )


# --- always -----------------------------------------------------------------------------------


def _validate_counters(status: Mapping[str, Any]) -> list[FieldError]:
    return [
        invalid(f"status.{field}", status[field], "must be greater than or equal to 0")
        for field in _COUNTERS
        if status.get(field, 0) < 0
    ]


def _validate_uncounted(uncounted: Mapping[str, Any]) -> list[FieldError]:
    errors = []
    seen: set[str] = set()
    for field in ("succeeded", "failed"):
        for i, uid in enumerate(uncounted.get(field, ())):
            path = f"status.uncountedTerminatedPods.{field}[{i}]"
            if not uid:
                errors.append(invalid(path, uid, "must not be empty"))
            elif uid in seen:
                errors.append(duplicate(path, uid))
            seen.add(uid)
    return errors


def _validate_success_criteria(write: Write) -> list[FieldError]:
    errors = []
    if write.true("SuccessCriteriaMet"):
        if write.true("Failed"):
            errors.append(
                _condition_error("cannot set SuccessCriteriaMet=True and Failed=true conditions")
            )
        if write.true("FailureTarget"):
            errors.append(
                _condition_error(
                    "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions"
                )
            )
    elif "successPolicy" in write.spec and write.true("Complete"):
        errors.append(
            _condition_error(
                "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True"
            )
        )
    return errors


def _validate_success_criteria_change(write: Write) -> Iterator[FieldError]:
    met, was_met = write.true("SuccessCriteriaMet"), write.was_true("SuccessCriteriaMet")
    if was_met and not met:
        yield _condition_error("cannot disable the SuccessCriteriaMet=True condition")
    if met and not was_met and write.was_true("Complete"):
        yield _condition_error(
            "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions"
        )


# --- rules about the new status ---------------------------------------------------------------


def _complete_and_failed(write: Write) -> Iterator[FieldError]:
    if write.true("Complete") and write.true("Failed"):
        yield _condition_error("cannot set Complete=True and Failed=true conditions")


def _complete_and_failure_target(write: Write) -> Iterator[FieldError]:
    if write.true("Complete") and write.true("FailureTarget"):
        yield _condition_error("cannot set Complete=True and FailureTarget=true conditions")


def _completion_time_without_complete(write: Write) -> Iterator[FieldError]:
    if "completionTime" in write.status and not write.true("Complete"):
        yield invalid(
            "status.completionTime",
            write.status["completionTime"],
            "cannot set completionTime when there is no Complete=True condition",
        )


def _complete_without_completion_time(write: Write) -> Iterator[FieldError]:
    if write.true("Complete") and "completionTime" not in write.status:
        yield required("status.completionTime", "completionTime is required for Complete jobs")


def _completion_before_start(write: Write) -> Iterator[FieldError]:
    start, completion = write.status.get("startTime"), write.status.get("completionTime")
    if start and completion and _parse_time(completion) < _parse_time(start):
        yield invalid("status.completionTime", completion, "must be equal to or after `startTime`")


def _failed_without_failure_target(write: Write) -> Iterator[FieldError]:
    if write.true("Failed") and not write.true("FailureTarget"):
        yield _condition_error(
            "cannot set Failed=True condition without the FailureTarget=true condition"
        )


def _complete_without_success_criteria(write: Write) -> Iterator[FieldError]:
    if write.true("Complete") and not write.true("SuccessCriteriaMet"):
        yield _condition_error(
            "cannot set Complete=True condition without the SuccessCriteriaMet=true condition"
        )


def _finished_with_active(write: Write) -> Iterator[FieldError]:
    active = write.status.get("active", 0)
    if write.finished and active > 0:
        yield invalid("status.active", active, "active>0 is invalid for finished job")


def _finished_with_terminating(write: Write) -> Iterator[FieldError]:
    terminating = write.status.get("terminating", 0)
    if write.finished and terminating > 0:
        yield invalid(
            "status.terminating", terminating, "terminating>0 is invalid for finished job"
        )


def _finished_without_start(write: Write) -> Iterator[FieldError]:
    if write.finished and "startTime" not in write.status:
        yield required("status.startTime", "startTime is required for finished job")


def _never_starts(write: Write) -> bool:
    """Return whether the Job completes without starting: suspended, with nothing to do."""
    return bool(write.spec.get("suspend")) and write.spec.get("completions") == 0


def _finished_with_uncounted(write: Write) -> Iterator[FieldError]:
    uncounted = write.status.get("uncountedTerminatedPods", {})
    if write.finished and (uncounted.get("succeeded") or uncounted.get("failed")):
        yield invalid("status.uncountedTerminatedPods", uncounted, "must be empty for finished job")


def _bad_completed_indexes(write: Write) -> Iterator[FieldError]:
    yield from _index_errors(write, "completedIndexes")


def _bad_failed_indexes(write: Write) -> Iterator[FieldError]:
    if "backoffLimitPerIndex" in write.spec:
        yield from _index_errors(write, "failedIndexes")


def _index_errors(write: Write, field: str) -> Iterator[FieldError]:
    text, completions = write.status.get(field), write.spec.get("completions")
    if text is None or completions is None:
        return
    try:
        validate_indexes(text, completions)
    except IndexFormatError as error:
        yield invalid(f"status.{field}", text, f"error parsing {field}: {error}")


def _completed_indexes_of_non_indexed(write: Write) -> Iterator[FieldError]:
    text = write.status.get("completedIndexes")
    if text and not write.indexed:
        yield invalid(
            "status.completedIndexes",
            text,
            "cannot set non-empty completedIndexes when non-indexed completion mode",
        )


def _failed_indexes_without_limit(write: Write) -> Iterator[FieldError]:
    text = write.status.get("failedIndexes")
    if text is not None and "backoffLimitPerIndex" not in write.spec:
        yield invalid(
            "status.failedIndexes",
            text,
            "cannot set non-null failedIndexes when backoffLimitPerIndex is null",
        )


def _overlapping_indexes(write: Write) -> Iterator[FieldError]:
    completed, failed = write.status.get("completedIndexes"), write.status.get("failedIndexes")
    if not completed or not failed:
        return
    try:
        check_no_overlap(completed, failed, write.spec.get("completions", 0))
    except IndexFormatError as error:
        yield invalid("status.failedIndexes", failed, str(error))


def _more_ready_than_active(write: Write) -> Iterator[FieldError]:
    ready = write.status.get("ready")
    if ready is not None and ready > write.status.get("active", 0):
        yield invalid("status.ready", ready, "cannot set more ready pods than active")


STATE_RULES: Final = (
    StatusRule("complete job with failed condition", ("Complete", "Failed"), _complete_and_failed),
    StatusRule(
        "complete job with failure target condition",
        ("Complete", "FailureTarget"),
        _complete_and_failure_target,
    ),
    StatusRule(
        "not complete job with completion time",
        ("Complete", "completionTime"),
        _completion_time_without_complete,
    ),
    StatusRule(
        "complete job without completion time",
        ("Complete", "completionTime"),
        _complete_without_completion_time,
    ),
    StatusRule(
        "completion time before start time",
        ("startTime", "completionTime"),
        _completion_before_start,
    ),
    StatusRule(
        "failed job without failure target",
        ("Failed", "failedIndexes"),
        _failed_without_failure_target,
    ),
    StatusRule(
        "complete job without success criteria met",
        ("Complete", "SuccessCriteriaMet"),
        _complete_without_success_criteria,
    ),
    StatusRule(
        "finished job with active pods",
        (*_FINISHED, "active"),
        _finished_with_active,
        lambda write: write.finish_changed or write.count_changed("active"),
    ),
    StatusRule(
        "finished job without start time",
        (*_FINISHED, "startTime"),
        _finished_without_start,
        lambda write: (
            (write.finish_changed or "startTime" in write.differs) and not _never_starts(write)
        ),
    ),
    StatusRule(
        "finished job with uncounted terminated pods",
        (*_FINISHED, "uncountedTerminatedPods"),
        _finished_with_uncounted,
        lambda write: write.finish_changed or "uncountedTerminatedPods" in write.differs,
    ),
    StatusRule("invalid completed indexes", ("completedIndexes",), _bad_completed_indexes),
    StatusRule("invalid failed indexes", ("failedIndexes",), _bad_failed_indexes),
    StatusRule(
        "completed indexes for non indexed job",
        ("completedIndexes",),
        _completed_indexes_of_non_indexed,
    ),
    StatusRule(
        "failed indexes for no backoff limit per index",
        ("failedIndexes",),
        _failed_indexes_without_limit,
    ),
    StatusRule(
        "failed indexes overlapping completed",
        ("failedIndexes", "completedIndexes"),
        _overlapping_indexes,
    ),
    StatusRule(
        "finished job with terminating pods",
        (*_FINISHED, "terminating"),
        _finished_with_terminating,
        lambda write: write.finish_changed or write.count_changed("terminating"),
    ),
    StatusRule(
        "more ready than active pods",
        ("ready", "active"),
        _more_ready_than_active,
        lambda write: write.count_changed("ready") or write.count_changed("active"),
    ),
)

# --- rules about the change from the old status -----------------------------------------------


def _disabled_terminal_condition(write: Write) -> Iterator[FieldError]:
    for kind in _TERMINAL:
        if write.was_true(kind) and not write.true(kind):
            yield _condition_error(f"cannot disable the terminal {kind}=True condition")


def _must_not_decrease(field: str) -> Callable[[Write], Iterator[FieldError]]:
    """Return a rule that rejects a decreasing count."""

    def check(write: Write) -> Iterator[FieldError]:
        count = write.status.get(field, 0)
        if count < write.old_status.get(field, 0):
            yield invalid(f"status.{field}", count, f"cannot decrease the {field} counter")

    return check


def _elastic(write: Write) -> bool:
    """Return whether the Job is elastic: scaling it down discards completed indexes."""
    spec = write.spec
    return write.indexed and spec.get("completions") == spec.get("parallelism")


def _mutated_completion_time(write: Write) -> Iterator[FieldError]:
    before, now = write.old_status.get("completionTime"), write.status.get("completionTime")
    if before is not None and now is not None and before != now:
        yield invalid("status.completionTime", now, "field is immutable")


def _resuming(write: Write) -> bool:
    """Return whether the write ends the suspension."""
    return write.was_true("Suspended") and _is_false(write.status, "Suspended")


def _updated_start_time(write: Write) -> Iterator[FieldError]:
    before, now = write.old_status.get("startTime"), write.status.get("startTime")
    if before is not None and before != now and not write.spec.get("suspend"):
        yield invalid("status.startTime", now, "field is immutable for unsuspended job once set")


CHANGE_RULES: Final = (
    StatusRule("disabling terminal condition", (), _disabled_terminal_condition),
    StatusRule("decreasing failed counter", (), _must_not_decrease("failed")),
    StatusRule(
        "decreasing succeeded counter",
        (),
        _must_not_decrease("succeeded"),
        lambda write: not _elastic(write),
    ),
    StatusRule("mutating completion time", (), _mutated_completion_time),
    StatusRule(
        "start time update for unsuspended job",
        ("startTime",),
        _updated_start_time,
        lambda write: not _resuming(write),
    ),
)


def _true_conditions(status: Mapping[str, Any]) -> frozenset[Any]:
    return frozenset(
        condition.get("type")
        for condition in status.get("conditions", ())
        if condition.get("status") == "True"
    )


def _is_false(status: Mapping[str, Any], kind: str) -> bool:
    return any(
        condition.get("type") == kind and condition.get("status") == "False"
        for condition in status.get("conditions", ())
    )


def _condition_error(detail: str) -> FieldError:
    return invalid("status.conditions", OMITTED, detail)


def _parse_time(text: str) -> datetime:
    return datetime.fromisoformat(text)
