"""Validation of Pod status updates: terminated containers must not become running again."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from onejob.api.kinds.pod.restart_rules import may_run_again
from onejob.api.sections import Raw, held
from onejob.api.strategy import Document
from onejob.wire.field_errors import FieldError, forbidden

#: Container lists of the spec and their status lists.
_STATUSES: Final = (
    ("containers", "containerStatuses"),
    ("initContainers", "initContainerStatuses"),
)


def validate_pod_status_change(new: Document, old: Document) -> list[FieldError]:
    before, after = held(old, "status", {}), held(new, "status", {})
    if type(before) is Raw or type(after) is Raw:
        before, after = old.get("status", {}), new.get("status", {})
    errors: list[FieldError] = []
    for containers, statuses in _STATUSES:
        known = held(before, statuses)
        if known is None or known is held(after, statuses):
            continue
        if type(known) is not Raw or b'"terminated"' in bytes(known):
            errors += _revived(after, before, old, containers, statuses)
    return errors


def _revived(
    after: Document, before: Document, old: Document, containers: str, statuses: str
) -> Iterator[FieldError]:
    ended = {
        status.get("name"): terminated
        for status in before[statuses]
        if (terminated := status.get("state", {}).get("terminated")) is not None
    }
    if not ended:
        return
    # The spec is decoded last: most status updates of running Pods do not need it.
    spec: Mapping[str, Any] = old.get("spec", {})
    if spec.get("restartPolicy") == "Always":
        return
    by_name = {container.get("name"): container for container in spec.get(containers, ())}
    for i, status in enumerate(after.get(statuses, ())):
        name = status.get("name")
        if name not in ended or "terminated" in status.get("state", {}):
            continue
        container = by_name.get(name, {})
        if not may_run_again(spec, container, ended[name].get("exitCode", 0)):
            yield forbidden(
                f"status.{statuses}[{i}].state",
                "may not be transitioned to non-terminated state",
            )
