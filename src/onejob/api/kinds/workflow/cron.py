"""CronWorkflow strategy: the rules of CronJobs about the schedule, those of Workflows below it."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from onejob.api.kinds.base import (
    BaseStrategy,
    keep_generation,
    keep_status,
    same_spec,
    untouched_spec,
)
from onejob.api.kinds.cronjob import validate_cron_fields
from onejob.api.kinds.metadata import validate_metadata_fields, validate_metadata_update
from onejob.api.kinds.sameness import same_meaning
from onejob.api.kinds.workflow.defaults import default_workflow_spec
from onejob.api.kinds.workflow.printing import CRONWORKFLOW_COLUMNS, cronworkflow_cells
from onejob.api.kinds.workflow.strategy import workflow_warnings
from onejob.api.kinds.workflow.validation import validate_workflow_spec
from onejob.api.strategy import Document
from onejob.wire.field_errors import FieldError

_TEMPLATE: Final = "workflowTemplate"
#: Stands for the minute that is appended to the name.
_MINUTE: Final = "-00000000"
_LIMITS: Final = ("successfulWorkflowsHistoryLimit", "failedWorkflowsHistoryLimit")


class CronWorkflowStrategy(BaseStrategy):
    shares_sections = True

    def default(self, doc: Document, old: Document | None = None) -> None:
        if same_spec(doc, old):
            return
        spec = doc.setdefault("spec", {})
        if not spec.get("concurrencyPolicy"):
            spec["concurrencyPolicy"] = "Allow"
        spec.setdefault("suspend", False)
        spec.setdefault("successfulWorkflowsHistoryLimit", 3)
        spec.setdefault("failedWorkflowsHistoryLimit", 1)
        default_workflow_spec(spec.setdefault(_TEMPLATE, {}).setdefault("spec", {}))

    def prepare_create(self, doc: Document) -> None:
        doc.pop("status", None)
        doc["metadata"]["generation"] = 1

    def validate_create(self, doc: Document) -> list[FieldError]:
        return [
            *self.validate_new_metadata(doc),
            *_validate_spec(doc["spec"], None, doc["metadata"].get("name", "")),
        ]

    def warnings_on_create(self, doc: Document) -> list[str]:
        return workflow_warnings(doc["spec"][_TEMPLATE]["spec"], f"spec.{_TEMPLATE}.spec")

    def prepare_update(self, new: Document, old: Document) -> None:
        keep_status(new, old)
        changed = not same_spec(new, old) and not same_meaning(new["spec"], old["spec"])
        keep_generation(new, old, changed=changed)

    def validate_update(self, new: Document, old: Document) -> list[FieldError]:
        errors = validate_metadata_update(new, old)
        if untouched_spec(new, old):
            return errors
        name = new["metadata"].get("name", "")
        return errors + _validate_spec(new["spec"], old["spec"], name)

    def columns(self) -> list[dict[str, Any]]:
        return CRONWORKFLOW_COLUMNS

    def cells(self, doc: Document, now: datetime) -> list[Any]:
        return cronworkflow_cells(doc, now)


def _validate_spec(
    spec: Mapping[str, Any], old: Mapping[str, Any] | None, name: str
) -> list[FieldError]:
    template = spec[_TEMPLATE]
    path = f"spec.{_TEMPLATE}"
    return [
        *validate_cron_fields(spec, old, "spec", _LIMITS),
        *validate_metadata_fields(template.get("metadata") or {}, f"{path}.metadata"),
        *validate_workflow_spec(template["spec"], f"{path}.spec", f"{name}{_MINUTE}"),
    ]
