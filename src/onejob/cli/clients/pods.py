"""The Pods of a Job, as clients see them."""

from typing import Any

from onejob.cli.clients.base import Api, list_all
from onejob.objects.meta import PODS
from onejob.wire.kinds import BY_RESOURCE


def pods_of_job(api: Api, job: dict[str, Any]) -> list[dict[str, Any]]:
    """Those that it owns, not all that its selector finds."""
    metadata = job["metadata"]
    labels = job["spec"].get("selector", {}).get("matchLabels", {})
    text = ",".join(f"{key}={value}" for key, value in labels.items())
    pods = list_all(api, BY_RESOURCE[PODS], metadata["namespace"], labelSelector=text)
    return [pod for pod in pods if metadata["uid"] in owners(pod)]


def owners(document: dict[str, Any]) -> list[str]:
    """Their UIDs."""
    return [owner["uid"] for owner in document["metadata"].get("ownerReferences", ())]
