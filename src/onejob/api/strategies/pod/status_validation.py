"""Which statuses a Pod may be given: any, but what has ended may not simply be running again."""

from collections.abc import Iterator, Mapping
from typing import Any

from onejob.api.strategies.pod.restart_rules import may_run_again
from onejob.api.strategy import Document
from onejob.wire.field_errors import FieldError, forbidden


def validate_pod_status_change(new: Document, old: Document) -> list[FieldError]:
    spec = old.get("spec", {})
    if spec.get("restartPolicy") == "Always":
        return []
    return [
        *_revived(new, old, spec, "containers", "containerStatuses"),
        *_revived(new, old, spec, "initContainers", "initContainerStatuses"),
    ]


def _revived(
    new: Document, old: Document, spec: Mapping[str, Any], containers: str, statuses: str
) -> Iterator[FieldError]:
    by_name = {container.get("name"): container for container in spec.get(containers, ())}
    ended = {
        status.get("name"): terminated
        for status in old.get("status", {}).get(statuses, ())
        if (terminated := status.get("state", {}).get("terminated")) is not None
    }
    if not ended:
        return
    for i, status in enumerate(new.get("status", {}).get(statuses, ())):
        name = status.get("name")
        if name not in ended or "terminated" in status.get("state", {}):
            continue
        container = by_name.get(name, {})
        if not may_run_again(spec, container, ended[name].get("exitCode", 0)):
            yield forbidden(
                f"status.{statuses}[{i}].state",
                "may not be transitioned to non-terminated state",
            )
