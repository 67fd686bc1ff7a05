"""Suites of other projects that `make peer-suites` runs, and the files that they need.

Their own Makefiles prepare the same files, with `kustomize`, `go list` and `git clone`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tests.managers.building import (
    JOBSET,
    KUBERAY,
    KUEUE,
    MPI_OPERATOR,
    TRAINER,
    Copied,
    Manager,
)

#: The suites pin its API module, which has no CRDs.
_VOLCANO: Final = "v1.14.1"
_VOLCANO_CRDS: Final = "config/crd/volcano/bases"

_COPIED: Final[Mapping[str, tuple[Copied, ...]]] = {
    KUEUE.name: (
        Copied(MPI_OPERATOR.module, "manifests/base", "dep-crds/mpi-operator"),
        Copied(
            "github.com/kubeflow/training-operator",
            "manifests/base/crds",
            "dep-crds/training-operator-crds",
            # Those of mpi-operator are another version.
            without="kubeflow.org_mpijobs.yaml",
        ),
        Copied(TRAINER.module, "manifests/base/crds", "dep-crds/kf-trainer-crds"),
        Copied(KUBERAY.module, "config/crd/bases", "dep-crds/ray-operator-crds"),
        Copied(JOBSET.module, "config/components/crd/bases", "dep-crds/jobset-operator"),
        Copied(
            "k8s.io/autoscaler/cluster-autoscaler/apis", "config/crd", "dep-crds/cluster-autoscaler"
        ),
        Copied(
            "github.com/project-codeflare/appwrapper",
            "config/crd/bases",
            "dep-crds/appwrapper-crds",
        ),
        Copied("sigs.k8s.io/lws", "config/crd/bases", "dep-crds/leaderworkerset-operator"),
        Copied("sigs.k8s.io/cluster-inventory-api", "config/crd/bases", "dep-crds/clusterprofile"),
        Copied(
            "github.com/kubeflow/spark-operator/v2",
            "config/crd/bases",
            "dep-crds/spark-operator-crds",
        ),
    ),
    MPI_OPERATOR.name: (
        Copied(
            "sigs.k8s.io/scheduler-plugins", "manifests/coscheduling", "dep-crds/scheduler-plugins"
        ),
        Copied("volcano.sh/volcano", _VOLCANO_CRDS, "dep-crds/volcano-scheduler", version=_VOLCANO),
    ),
    TRAINER.name: (
        Copied(
            JOBSET.module, "config/components/crd/bases", "manifests/external-crds/jobset-operator"
        ),
        Copied(
            "sigs.k8s.io/scheduler-plugins",
            "manifests/coscheduling",
            "manifests/external-crds/scheduler-plugins",
        ),
        Copied(
            "volcano.sh/volcano",
            _VOLCANO_CRDS,
            "manifests/external-crds/volcano",
            version=_VOLCANO,
        ),
    ),
}


@dataclass(frozen=True, slots=True)
class Suite:
    manager: Manager
    package: str
    #: Whether it has Ginkgo's specs; else its results are those of `go test`.
    has_specs: bool = True

    @property
    def copied(self) -> tuple[Copied, ...]:
        return _COPIED.get(self.manager.name, ())

    @property
    def kustomized(self) -> tuple[str, str] | None:
        if self.manager is not KUEUE:
            return None
        folder = "config/components/crd"
        return folder, f"{folder}/_output/crds-with-webhooks.yaml"


_SINGLE: Final = "test/integration/singlecluster"

SUITES: Final[Mapping[str, Suite]] = {
    "jobset-webhook": Suite(JOBSET, "test/integration/webhook"),
    "jobset-controller": Suite(JOBSET, "test/integration/controller"),
    "multikueue": Suite(KUEUE, "test/integration/multikueue"),
    "multikueue-scheduler": Suite(KUEUE, "test/integration/multikueue/scheduler"),
    "multikueue-tas": Suite(KUEUE, "test/integration/multikueue/tas"),
    "kueue-webhook-core": Suite(KUEUE, f"{_SINGLE}/webhook/core"),
    "kueue-webhook-jobs": Suite(KUEUE, f"{_SINGLE}/webhook/jobs"),
    "kueue-conversion": Suite(KUEUE, f"{_SINGLE}/conversion"),
    "kueue-core": Suite(KUEUE, f"{_SINGLE}/controller/core"),
    "kueue-job": Suite(KUEUE, f"{_SINGLE}/controller/jobs/job"),
    "trainer-webhook": Suite(TRAINER, "test/integration/webhooks"),
    "trainer-controller": Suite(TRAINER, "test/integration/controller"),
    "kuberay-webhook": Suite(KUBERAY, "pkg/webhooks/v1"),
    "kuberay-controller": Suite(KUBERAY, "controllers/ray"),
    "mpi-operator": Suite(MPI_OPERATOR, "test/integration", has_specs=False),
}

#: Specs that fail with onejob and pass with kube-apiserver, by suite, and the reason.
KNOWN_FAILURES: Final[Mapping[str, Mapping[str, str]]] = {}
