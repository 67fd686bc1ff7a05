"""Pods of a Job, read through the client API."""

from typing import Any

from onejob.cli.sources.base import Api, list_all
from onejob.objects.meta import PODS
from onejob.wire.kinds import BY_RESOURCE


def pods_of_job(api: Api, job: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the Pods that the Job owns; its selector alone may match more."""
    metadata = job["metadata"]
    labels = job["spec"].get("selector", {}).get("matchLabels", {})
    text = ",".join(f"{key}={value}" for key, value in labels.items())
    pods = list_all(api, BY_RESOURCE[PODS], metadata["namespace"], labelSelector=text)
    return [pod for pod in pods if metadata["uid"] in owners(pod)]


def owners(document: dict[str, Any]) -> list[str]:
    """Return the UIDs of an object's owner references."""
    return [owner["uid"] for owner in document["metadata"].get("ownerReferences", ())]
