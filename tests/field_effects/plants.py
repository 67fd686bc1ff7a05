"""Disablement of any acting field: a plant of its own, or concealment from the views."""

from collections.abc import Mapping
from contextlib import ExitStack

from onejob.api.admission.pod_accounts import PodAccounts
from onejob.api.admission.priority import Priorities
from onejob.api.kinds.job.strategy import JobStrategy
from onejob.api.kinds.pod.defaults import _default_service_account
from onejob.api.kinds.pod.strategy import PodStrategy
from onejob.api.kinds.pod.update import _validate_gates
from onejob.node.podman.command import security_arguments
from onejob.planning.claims.documents import ephemeral_claim
from onejob.planning.job.pod_template import PodFactory
from sim.mutants.planting import Plant, edit
from tests.field_effects.concealment import attributes, conceal

_META = "apimachinery.pkg.apis.meta.v1.ObjectMeta"

#: Fields that are read from documents instead of views.
PLANTS: Mapping[str, Plant] = {
    "batch.v1.JobSpec.manualSelector": edit(
        JobStrategy.prepare_create, ('not spec.get("manualSelector")', "True")
    ),
    "core.v1.EphemeralVolumeSource.volumeClaimTemplate": edit(
        ephemeral_claim, ("template.get(", "{}.get(")
    ),
    "core.v1.PersistentVolumeClaimTemplate.metadata": edit(
        ephemeral_claim, ('template.get("metadata")', "None")
    ),
    "core.v1.PersistentVolumeClaimTemplate.spec": edit(
        ephemeral_claim, ('template.get("spec")', "None")
    ),
    "core.v1.PodSchedulingGate.name": edit(
        _validate_gates, ('if gate.get("name") not in known', "if False")
    ),
    "core.v1.PodSpec.automountServiceAccountToken": edit(
        PodAccounts.admit, ('spec.get("automountServiceAccountToken")', "None")
    ),
    "core.v1.PodSpec.priorityClassName": edit(
        Priorities.admit, ('spec.get("priorityClassName", "")', '""')
    ),
    "core.v1.PodSpec.serviceAccount": edit(
        _default_service_account, (' or spec.get("serviceAccount")', "")
    ),
    "core.v1.PodSpec.terminationGracePeriodSeconds": edit(
        PodStrategy.deletion_grace_seconds, ('spec.get("terminationGracePeriodSeconds", 0)', "30")
    ),
    "core.v1.PodTemplateSpec.metadata": edit(
        PodFactory.__init__, ('template.get("metadata") or {}', "{}")
    ),
    "core.v1.PodTemplateSpec.spec": edit(
        PodFactory.__init__, ('dict(template.get("spec") or {})', "{}")
    ),
    **{
        f"{_META}.{field}": edit(PodFactory.__init__, (f'metadata.get("{field}")', "None"))
        for field in ("annotations", "finalizers", "labels")
    },
    **{
        f"core.v1.SELinuxOptions.{field}": edit(
            security_arguments, ("in labels.items()", f'in labels.items() if name != "{field}"')
        )
        for field in ("level", "role", "type", "user")
    },
}


def disable(undo: ExitStack, type_: str, field: str) -> None:
    plant = PLANTS.get(f"{type_}.{field}")
    if plant is not None:
        plant(undo)
    else:
        conceal(undo, type_, field)


def can_disable(type_: str, field: str) -> bool:
    return f"{type_}.{field}" in PLANTS or bool(attributes(type_, field))
