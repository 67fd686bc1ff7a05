"""Pod strategy: entry point."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from onejob.api.kinds.base import (
    SelectableStrategy,
    keep_all_but_status,
    keep_generation,
    keep_section,
    keep_status,
    same_spec,
)
from onejob.api.kinds.metadata import validate_metadata_update
from onejob.api.kinds.pod.defaults import default_pod
from onejob.api.kinds.pod.printing import POD_COLUMNS, pod_cells, pod_row_conditions
from onejob.api.kinds.pod.resources import quality_of_service
from onejob.api.kinds.pod.template import (
    validate_pod_spec,
    validate_pod_ttl,
)
from onejob.api.kinds.pod.update import validate_pod_change, validate_pod_status_change
from onejob.api.kinds.pod.warnings import pod_name_warnings, pod_spec_warnings
from onejob.api.kinds.sameness import newly_invalid, same_meaning
from onejob.api.strategy import Document
from onejob.gates import FeatureGates
from onejob.wire.field_errors import FieldError, forbidden
from onejob.wire.kinds import Kind

_TTL = "ttlSecondsAfterFinished"
#: Fields set from a PriorityClass on creation; clients may omit them in updates.
_FROM_CLASS = ("priority", "preemptionPolicy")

_GATED_CONDITION = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "SchedulingGated",
    "message": "Scheduling is blocked due to non-empty scheduling gates",
}


class PodStrategy(SelectableStrategy):
    judges_spec_alone = True
    shares_sections = True
    selectable = frozenset(
        {
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        }
    )

    def __init__(self, kind: Kind, gates: FeatureGates) -> None:
        super().__init__(kind)
        self._has_ttl = gates.enabled("TTLAfterFinishedPods")
        self._has_groups = gates.enabled("GenericWorkload")

    def default(self, doc: Document, old: Document | None = None) -> None:
        if not same_spec(doc, old):
            default_pod(doc)

    def prepare_create(self, doc: Document) -> None:
        metadata, spec = doc["metadata"], doc["spec"]
        metadata["generation"] = 1
        if not self._has_ttl:
            spec.pop(_TTL, None)
        if not spec.get("serviceAccountName"):
            spec["serviceAccountName"] = spec["serviceAccount"] = "default"
        status: dict[str, Any] = {"phase": "Pending", "qosClass": quality_of_service(spec)}
        if spec.get("schedulingGates"):
            status["conditions"] = [dict(_GATED_CONDITION)]
        doc["status"] = status

    def validate_create(self, doc: Document) -> list[FieldError]:
        spec = doc["spec"]
        errors = self.validate_new_metadata(doc) + _validate_spec(spec)
        if spec.get("schedulingGates") and spec.get("nodeName"):
            errors.append(
                forbidden(
                    "spec.nodeName", "cannot be set until all schedulingGates have been cleared"
                )
            )
        if self._has_groups and "schedulingGroup" in spec:
            from onejob.api.kinds.gang_rules import check_scheduling_group

            errors += check_scheduling_group(spec, "spec")
        if spec.get("ephemeralContainers"):
            errors.append(forbidden("spec.ephemeralContainers", "cannot be set on create"))
        return errors

    def warnings_on_create(self, doc: Document) -> list[str]:
        name = doc["metadata"].get("name", "")
        return [*pod_name_warnings(name), *pod_spec_warnings(doc["spec"], "spec")]

    def prepare_update(self, new: Document, old: Document) -> None:
        keep_status(new, old)
        if same_spec(new, old):
            keep_generation(new, old, changed=False)
            return
        if not self._has_ttl and _TTL not in old["spec"]:
            new["spec"].pop(_TTL, None)
        for field in _FROM_CLASS:
            if new["spec"].get(field) is None and field in old["spec"]:
                new["spec"][field] = old["spec"][field]
        keep_generation(new, old, changed=not same_meaning(new["spec"], old["spec"]))

    def validate_update(self, new: Document, old: Document) -> list[FieldError]:
        errors = validate_metadata_update(new, old)
        # Most updates change only metadata.
        if same_spec(new, old):
            return errors
        errors += newly_invalid(
            _validate_spec(new["spec"]), lambda: _validate_spec(old["spec"]), "spec"
        )
        return errors + validate_pod_change(new["spec"], old["spec"])

    def prepare_status_update(self, new: Document, old: Document) -> None:
        keep_all_but_status(new, old)
        if new["metadata"] is not old["metadata"]:
            # Agents send back metadata that they read earlier; it must not undo an adoption in
            # between.
            keep_section(new["metadata"], old["metadata"], "ownerReferences")
        if "qosClass" not in new.get("status", {}):
            quality = old.get("status", {}).get("qosClass")
            if quality:
                new.setdefault("status", {})["qosClass"] = quality

    def validate_status_update(self, new: Document, old: Document) -> list[FieldError]:
        errors = validate_pod_status_change(new, old)
        if new["metadata"] is old["metadata"]:
            return errors
        return validate_metadata_update(new, old) + errors

    def prepare_ephemeral_containers(self, new: Document, old: Document) -> None:
        from onejob.api.kinds.pod.ephemeral import keep_all_but_ephemeral

        keep_all_but_ephemeral(new, old)
        keep_generation(new, old, changed=not same_meaning(new["spec"], old["spec"]))

    def validate_ephemeral_containers(self, new: Document, old: Document) -> list[FieldError]:
        from onejob.api.kinds.pod.ephemeral import validate_ephemeral

        return validate_metadata_update(new, old) + validate_ephemeral(new["spec"], old["spec"])

    def prepare_resize(self, new: Document, old: Document) -> None:
        from onejob.api.kinds.pod.resizing import keep_all_but_resources

        keep_all_but_resources(new, old)
        keep_generation(new, old, changed=not same_meaning(new["spec"], old["spec"]))

    def validate_resize(self, new: Document, old: Document) -> list[FieldError]:
        from onejob.api.kinds.pod.resizing import validate_resize

        errors = validate_metadata_update(new, old)
        if same_spec(new, old):
            return errors
        errors += newly_invalid(
            _validate_spec(new["spec"]), lambda: _validate_spec(old["spec"]), "spec"
        )
        return errors + validate_resize(new, old)

    def selectable_fields(self, doc: Document) -> Mapping[str, str]:
        spec, status = doc.get("spec", {}), doc.get("status", {})
        address = status.get("podIP", "")
        return {
            "spec.nodeName": spec.get("nodeName", ""),
            "spec.restartPolicy": spec.get("restartPolicy", ""),
            "spec.schedulerName": spec.get("schedulerName", ""),
            "spec.serviceAccountName": spec.get("serviceAccountName", ""),
            "spec.hostNetwork": "true" if spec.get("hostNetwork") else "false",
            "status.phase": status.get("phase", ""),
            "status.podIP": address,
            "status.podIPs": address,
            "status.nominatedNodeName": status.get("nominatedNodeName", ""),
        }

    def deletion_grace_seconds(self, doc: Document, requested: int | None) -> int:
        if doc.get("status", {}).get("phase") in ("Succeeded", "Failed"):
            return 0
        spec = doc.get("spec", {})
        if not spec.get("nodeName"):
            return 0
        grace: int = (
            requested if requested is not None else spec.get("terminationGracePeriodSeconds", 0)
        )
        return grace if grace >= 0 else 1

    def columns(self) -> list[dict[str, Any]]:
        return POD_COLUMNS

    def cells(self, doc: Document, now: datetime) -> list[Any]:
        return pod_cells(doc, now)

    def row_conditions(self, doc: Document) -> list[dict[str, str]]:
        return pod_row_conditions(doc)


def _validate_spec(spec: Mapping[str, Any]) -> list[FieldError]:
    return validate_pod_spec(spec, "spec") + validate_pod_ttl(spec, "spec")
