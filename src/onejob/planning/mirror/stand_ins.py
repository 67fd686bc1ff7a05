"""Local stand-in Pods for remote Pods: same name, same status, no local process.

They carry the fields that `kubectl get`, `describe` and `logs` show. They are bound to a virtual
node, so that no kubelet runs them, and are controlled by the local Job, so that its selector finds
them and they are deleted with it.
"""

from typing import Any, Final

from onejob.objects.meta import PODS, Key
from onejob.planning.mirror import names

Document = dict[str, Any]

_OWN_LABELS: Final = {
    "batch.kubernetes.io/controller-uid": "uid",
    "controller-uid": "uid",
    "batch.kubernetes.io/job-name": "name",
    "job-name": "name",
}
_CONTAINER_FIELDS: Final = (
    "name", "image", "command", "args", "workingDir", "env", "resources", "tty", "stdin",
)  # fmt: skip


def stand_in_key(job: Document, pod: Document) -> Key:
    return Key(PODS, job["metadata"]["namespace"], pod["metadata"]["name"])


def stand_in(job: Document, pod: Document, target: str) -> Document:
    """Return the stand-in Pod without its status, which is written separately."""
    ours, theirs = job["metadata"], pod["metadata"]
    labels = dict(theirs.get("labels", {}))
    for label, field in _OWN_LABELS.items():
        if label in labels:
            labels[label] = ours[field]
    spec = pod["spec"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": theirs["name"],
            "namespace": ours["namespace"],
            "labels": labels,
            "annotations": {
                **theirs.get("annotations", {}),
                names.REMOTE_NAMESPACE: theirs["namespace"],
                names.REMOTE_UID: theirs["uid"],
            },
            "ownerReferences": [
                {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "name": ours["name"],
                    "uid": ours["uid"],
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {
            "nodeName": names.node_name(target),
            "restartPolicy": spec.get("restartPolicy", "Never"),
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "containers": [_container(one) for one in spec["containers"]],
            **_init_containers(spec),
        },
    }


def _container(container: Document) -> Document:
    """Return a container, reduced to the fields that stand-ins show."""
    return {field: container[field] for field in _CONTAINER_FIELDS if field in container}


def _init_containers(spec: Document) -> Document:
    if not spec.get("initContainers"):
        return {}
    return {
        "initContainers": [
            _container(one)
            | ({"restartPolicy": one["restartPolicy"]} if "restartPolicy" in one else {})
            for one in spec["initContainers"]
        ]
    }


def stand_in_status(pod: Document) -> Document:
    """Return the remote status without fields that the local API server manages itself."""
    left_out = ("qosClass", "observedGeneration")
    status = {name: value for name, value in pod.get("status", {}).items() if name not in left_out}
    return {"phase": "Pending", **status}


def local_event(event: Document, about: Document, target: str) -> Document:
    """Return a remote Event as an Event about the local object."""
    kept = (
        "reason", "message", "firstTimestamp", "lastTimestamp", "count", "type", "action",
        "eventTime", "series",
    )  # fmt: skip
    metadata = about["metadata"]
    involved = {
        "apiVersion": about["apiVersion"],
        "kind": about["kind"],
        "namespace": metadata["namespace"],
        "name": metadata["name"],
        "uid": metadata["uid"],
    }
    if field_path := event.get("involvedObject", {}).get("fieldPath"):
        involved["fieldPath"] = field_path
    component = event.get("source", {}).get("component") or event.get("reportingComponent") or ""
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": event["metadata"]["name"], "namespace": metadata["namespace"]},
        "involvedObject": involved,
        "source": {"component": component, "host": names.node_name(target)},
        "reportingComponent": component,
        "reportingInstance": names.node_name(target),
        **{name: event[name] for name in kept if event.get(name) is not None},
    }
