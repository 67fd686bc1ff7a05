"""Job strategy: entry point."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from onejob.api.kinds.base import (
    BaseStrategy,
    keep_generation,
    keep_status,
    same_spec,
    untouched_spec,
)
from onejob.api.kinds.job.defaults import default_job_metadata, default_job_spec
from onejob.api.kinds.job.original_status import with_original_status_fields
from onejob.api.kinds.job.status_validation import (
    Write,
    applicable_rules,
    validate_job_status_update,
)
from onejob.api.kinds.job.update import update_options, validate_job_update
from onejob.api.kinds.job.validation import (
    CONTROLLER_UID,
    JOB_NAME,
    OLD_CONTROLLER_UID,
    OLD_JOB_NAME,
    JobOptions,
    validate_job,
)
from onejob.api.kinds.job.warnings import job_name_warnings, job_spec_warnings
from onejob.api.kinds.metadata import validate_metadata_update
from onejob.api.kinds.printing import JOB_COLUMNS, MANAGED_BY, job_cells, managed_by_cell
from onejob.api.kinds.sameness import same_meaning
from onejob.api.strategy import Document
from onejob.gates import FeatureGates
from onejob.planning.names import TRACKING, TRACKING_NAMES
from onejob.wire.field_errors import FieldError, forbidden
from onejob.wire.kinds import Kind


def disabled_job_fields(gates: FeatureGates) -> tuple[str, ...]:
    """Return the fields that are dropped from the spec of new Jobs."""
    fields = []
    if not gates.enabled("WorkloadWithJob"):
        fields.append("scheduling")
    if not gates.enabled("JobManagedBy"):
        fields.append("managedBy")
    if not gates.enabled("TTLAfterFinished"):
        fields.append("ttlSecondsAfterFinished")
    return tuple(fields)


def drop_disabled(
    spec: dict[str, Any], old_spec: Mapping[str, Any], disabled: tuple[str, ...]
) -> None:
    """Drop disabled fields that the stored object does not have.

    A stored field is kept when its feature gate is disabled.
    """
    for field in disabled:
        if field not in old_spec:
            spec.pop(field, None)


class JobStrategy(BaseStrategy):
    shares_sections = True
    # A DELETE without a policy orphans the Pods: upstream's default for batch/v1.
    default_propagation: Literal["Background", "Orphan"] = "Orphan"

    def __init__(self, kind: Kind, gates: FeatureGates, tracking: str = TRACKING) -> None:
        super().__init__(kind)
        self._tracking = tracking
        self._has_groups = gates.enabled("GenericWorkload")
        self._disabled = disabled_job_fields(gates)
        self._scheduling_gate = gates.enabled("MutableSchedulingDirectivesForSuspendedJobs")
        self._resources_gate = gates.enabled("MutablePodResourcesForSuspendedJobs")
        self._status_rules = gates.enabled("JobManagedBy")
        self._manager_column = gates.enabled("JobManagedByColumn")
        self._annotates = gates.enabled("JobTrackingAnnotation")
        self._tracks = gates.enabled("JobTrackingWithFinalizers")
        self.shows_as_stored = not gates.enabled("JobOriginalStatusFields")

    def default(self, doc: Document, old: Document | None = None) -> None:
        if not same_spec(doc, old):
            default_job_spec(doc)
        default_job_metadata(doc)

    def prepare_create(self, doc: Document) -> None:
        doc.pop("status", None)
        metadata, spec = doc["metadata"], doc["spec"]
        metadata["generation"] = 1
        drop_disabled(spec, {}, self._disabled)
        if not spec.get("manualSelector"):
            _generate_selector(metadata, spec)
        if self._annotates:
            _stamp_tracking(metadata, self._tracking if self._tracks else None)

    def validate_create(self, doc: Document) -> list[FieldError]:
        errors = validate_job(doc, JobOptions())
        if self._has_groups:
            from onejob.api.kinds.gang_rules import check_scheduling_group

            template = doc["spec"].get("template", {})
            errors += check_scheduling_group(template.get("spec", {}), "spec.template.spec")
        return errors

    def warnings_on_create(self, doc: Document) -> list[str]:
        return [
            *job_name_warnings(doc["metadata"].get("name", "")),
            *job_spec_warnings(doc["spec"], "spec"),
        ]

    def prepare_update(self, new: Document, old: Document) -> None:
        keep_status(new, old)
        if same_spec(new, old):
            keep_generation(new, old, changed=False)
            return
        drop_disabled(new["spec"], old["spec"], self._disabled)
        keep_generation(new, old, changed=not same_meaning(new["spec"], old["spec"]))

    def validate_update(self, new: Document, old: Document) -> list[FieldError]:
        if untouched_spec(new, old):
            errors = validate_metadata_update(new, old)
        else:
            options = update_options(
                old, scheduling_gate=self._scheduling_gate, resources_gate=self._resources_gate
            )
            errors = validate_job_update(new, old, options)
        if self._annotates:
            errors += _added_tracking(new, old)
        return errors

    def warnings_on_update(self, new: Document, old: Document) -> list[str]:
        if new["metadata"].get("generation") == old["metadata"].get("generation"):
            return []
        return job_spec_warnings(new["spec"], "spec")

    def validate_status_update(self, new: Document, old: Document) -> list[FieldError]:
        write = Write(old, new)
        rules = applicable_rules(write) if self._status_rules else ()
        return validate_job_status_update(write, rules)

    def selectable_fields(self, doc: Document) -> Mapping[str, str]:
        return {"status.successful": str(doc.get("status", {}).get("succeeded", 0))}

    def field_label_error(self, label: str) -> str | None:
        if label in ("metadata.name", "metadata.namespace", "status.successful"):
            return None
        return f'field label "{label}" not supported for Job'

    def shown(self, document: bytes) -> bytes:
        return with_original_status_fields(document)

    def columns(self) -> list[dict[str, Any]]:
        return [*JOB_COLUMNS, MANAGED_BY] if self._manager_column else JOB_COLUMNS

    def cells(self, doc: Document, now: datetime) -> list[Any]:
        cells = job_cells(doc, now)
        return [*cells, managed_by_cell(doc)] if self._manager_column else cells


def _generate_selector(metadata: dict[str, Any], spec: dict[str, Any]) -> None:
    """Generate labels and selector from the Job's uid, so that Jobs of the same name never share
    Pods."""
    name, uid = metadata.get("name", ""), metadata.get("uid", "")
    template = spec.setdefault("template", {})
    # In place: a Job without labels of its own shares this dict, see `job/defaults.py`.
    labels = template.setdefault("metadata", {}).setdefault("labels", {})
    labels.setdefault(OLD_JOB_NAME, name)
    labels.setdefault(OLD_CONTROLLER_UID, uid)
    labels.setdefault(JOB_NAME, name)
    labels.setdefault(CONTROLLER_UID, uid)
    selector = spec.setdefault("selector", {})
    selector.setdefault("matchLabels", {}).setdefault(CONTROLLER_UID, uid)


def _stamp_tracking(metadata: dict[str, Any], name: str | None) -> None:
    """Set the annotation that marks a new Job as tracked by finalizers.

    If `name` is None, the Job is not tracked and both known annotations are removed.
    """
    if name is not None:
        metadata.setdefault("annotations", {})[name] = ""
        return
    annotations = metadata.get("annotations", {})
    for key in TRACKING_NAMES:
        annotations.pop(key, None)
    if not annotations:
        metadata.pop("annotations", None)


def _added_tracking(new: Document, old: Document) -> list[FieldError]:
    before = old["metadata"].get("annotations", {})
    after = new["metadata"].get("annotations", {})
    return [
        forbidden(f"metadata.annotations[{key}]", "cannot add this annotation")
        for key in TRACKING_NAMES
        if key in after and key not in before
    ]
