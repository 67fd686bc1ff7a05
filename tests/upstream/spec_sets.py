"""Sets of Kubernetes' end-to-end specs, by expressions on their names."""

from dataclasses import dataclass
from typing import Final

OFF_BY_DEFAULT: Final = r"\[Feature:OffByDefault\]"

#: Specs excluded from the wide set, and their requirements.
_LEFT_OUT: Final = {
    r"\[(Serial|Slow|Disruptive)\]": "a cluster of their own, or several nodes",
    r"\[Feature:OffByDefault\]": "alpha features",
    r"AdmissionWebhook|CustomResourceConversionWebhook|CustomResourceFieldSelectors": (
        "in the set `admission`"
    ),
    r"Aggregator": "aggregated API servers",
    r"StorageVersionMigration": "a kind that is not served",
    r"CSIInlineVolumes|CSINodes|CSIStorageCapacity|VolumeAttach|VolumeAttributes": "CSI",
    r"\[DRA\]": "dynamic resource allocation",
    r"InPlace Resize": "resizing of Pods",
    r"ImageVolume": "images",
    r"Ephemeral Containers|KubeletManagedEtcHosts|Node Lifecycle": "images, or other nodes",
    r"\[FeatureGate|PodCertificate": "kinds that are not served",
    r"Guestbook": "Deployments",
}


@dataclass(frozen=True, slots=True)
class Part:
    """Specs that run sequentially against one server. Regular expressions of Go."""

    focus: str
    skip: str = OFF_BY_DEFAULT
    #: Whether Pods of default accounts get tokens, as on Kubernetes but not by default on onejob.
    tokens: bool = False


def _conformance(beginning: str, *, without: str = "") -> Part:
    """Return the conformance specs with this prefix, without the excluded ones."""
    skipped = [*_LEFT_OUT, *([without] if without else [])]
    return Part(rf"{beginning}.*\[Conformance\]", "|".join(skipped))


_CRD: Final = (
    r"\[sig-api-machinery\] (CustomResourceDefinition|CustomResourcePublishOpenAPI"
    r"|FieldValidation|AggregatedDiscovery)"
)
#: Specs of sig-node that wait for minutes.
_PATIENT: Final = r"\[sig-node\] (Probing container|Pods|PreStop|Container Lifecycle|Variable)"

#: Set name -> part name -> part.
SETS: Final[dict[str, dict[str, Part]]] = {
    "jobs": {"jobs": Part(r"\[sig-apps\] (Job|CronJob|TTLAfterFinished) ")},
    "crd": {"crd": _conformance(_CRD)},
    # Webhooks run as Pods of a Deployment behind a Service. Those for conversion read their token.
    "admission": {
        "webhooks": Part(r"\[sig-api-machinery\] AdmissionWebhook"),
        "conversion": Part(
            r"CustomResourceConversionWebhook|CustomResourceFieldSelectors", tokens=True
        ),
        "policies": Part(r"\[sig-api-machinery\] (Validating|Mutating)AdmissionPolicy"),
    },
    # The conformance specs without network, workload controllers and the specs excluded above.
    "wide": {
        "storage": _conformance(r"\[sig-storage\]"),
        "node": _conformance(r"\[sig-node\]", without=_PATIENT),
        "node-patient": _conformance(_PATIENT),
        "crd": _conformance(_CRD),
        "api-machinery": _conformance(r"\[sig-api-machinery\]", without=_CRD),
        "others": _conformance(
            r"\[sig-(auth|cli|instrumentation|scheduling|apps\] DisruptionController)"
        ),
    },
}
