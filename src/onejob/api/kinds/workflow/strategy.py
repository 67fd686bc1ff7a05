"""Workflow strategy: entry point."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from onejob.api.kinds.base import (
    BaseStrategy,
    keep_generation,
    keep_status,
    same_spec,
    untouched_spec,
)
from onejob.api.kinds.job.warnings import job_spec_warnings
from onejob.api.kinds.metadata import validate_metadata_update
from onejob.api.kinds.sameness import same_meaning
from onejob.api.kinds.workflow.defaults import default_workflow_spec
from onejob.api.kinds.workflow.printing import WORKFLOW_COLUMNS, workflow_cells
from onejob.api.kinds.workflow.validation import validate_workflow_spec, validate_workflow_update
from onejob.api.strategy import Document
from onejob.wire.field_errors import FieldError


class WorkflowStrategy(BaseStrategy):
    shares_sections = True
    status_without_rules = True

    def default(self, doc: Document, old: Document | None = None) -> None:
        if not same_spec(doc, old):
            default_workflow_spec(doc.setdefault("spec", {}))

    def prepare_create(self, doc: Document) -> None:
        doc.pop("status", None)
        doc["metadata"]["generation"] = 1

    def validate_create(self, doc: Document) -> list[FieldError]:
        name = doc["metadata"].get("name", "")
        return [
            *self.validate_new_metadata(doc),
            *validate_workflow_spec(doc["spec"], "spec", name),
        ]

    def warnings_on_create(self, doc: Document) -> list[str]:
        return workflow_warnings(doc["spec"], "spec")

    def prepare_update(self, new: Document, old: Document) -> None:
        keep_status(new, old)
        changed = not same_spec(new, old) and not same_meaning(new["spec"], old["spec"])
        keep_generation(new, old, changed=changed)

    def validate_update(self, new: Document, old: Document) -> list[FieldError]:
        errors = validate_metadata_update(new, old)
        if untouched_spec(new, old):
            return errors
        return errors + validate_workflow_update(new["spec"], old["spec"], "spec")

    def columns(self) -> list[dict[str, Any]]:
        return WORKFLOW_COLUMNS

    def cells(self, doc: Document, now: datetime) -> list[Any]:
        return workflow_cells(doc, now)


def workflow_warnings(spec: Mapping[str, Any], path: str) -> list[str]:
    return [
        warning
        for field in ("tasks", "finally")
        for number, task in enumerate(spec.get(field, ()))
        for warning in job_spec_warnings(
            task["template"]["spec"], f"{path}.{field}[{number}].template.spec"
        )
    ]
