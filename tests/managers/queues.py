"""Objects of an administrator of Kueue, and Jobs of its users."""

from typing import Any

from tests import build

API_VERSION = "kueue.x-k8s.io/v1beta2"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"


def flavor() -> dict[str, Any]:
    return _cluster_wide("ResourceFlavor", "default")


def cluster_queue(cpu: int, **spec: Any) -> dict[str, Any]:
    covered = {"name": "cpu", "nominalQuota": cpu}
    return _cluster_wide(
        "ClusterQueue",
        "team",
        namespaceSelector={},
        resourceGroups=[
            {
                "coveredResources": ["cpu"],
                "flavors": [{"name": "default", "resources": [covered]}],
            }
        ],
        **spec,
    )


def local_queue() -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": "LocalQueue",
        "metadata": {"name": "jobs", "namespace": "default"},
        "spec": {"clusterQueue": "team"},
    }


def priority(name: str, value: int) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": "WorkloadPriorityClass",
        "metadata": {"name": name},
        "value": value,
    }


def multikueue(worker_secret: str) -> list[dict[str, Any]]:
    """Return one worker cluster, and the admission check that sends Jobs there."""
    source = {"kubeConfig": {"locationType": "Secret", "location": worker_secret}}
    parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "workers"}
    return [
        _cluster_wide("MultiKueueCluster", "worker", clusterSource=source),
        _cluster_wide("MultiKueueConfig", "workers", clusters=["worker"]),
        _cluster_wide(
            "AdmissionCheck",
            "elsewhere",
            controllerName="kueue.x-k8s.io/multikueue",
            parameters=parameters,
        ),
    ]


def job(name: str, command: str, labels: dict[str, str] | None = None, **spec: Any) -> Any:
    """Return a Job of two Pods with one CPU each, which Kueue's webhook suspends."""
    main = build.shell(command, name="main", resources={"requests": {"cpu": "1"}})
    return build.a_job(
        name,
        metadata={"labels": {QUEUE_LABEL: "jobs", **(labels or {})}},
        template=build.template(main, terminationGracePeriodSeconds=0),
        **{"parallelism": 2, "completions": 2, **spec},
    )


def _cluster_wide(kind: str, name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}
