"""Location of the Pod template in each kind that creates Pods."""

from typing import Final

from onejob.api.strategy import Document
from onejob.objects.meta import CRONJOBS, JOBS

_TEMPLATES: Final = {
    JOBS: ("spec", "template"),
    CRONJOBS: ("spec", "jobTemplate", "spec", "template"),
    "podtemplates": ("template",),
    "deployments.apps": ("spec", "template"),
    "replicasets.apps": ("spec", "template"),
    "statefulsets.apps": ("spec", "template"),
    "daemonsets.apps": ("spec", "template"),
}
TEMPLATE_RESOURCES: Final = frozenset(_TEMPLATES)


def template_of(resource: str, document: Document) -> Document | None:
    """Return the Pod template in a document of this resource; None if it is absent or empty."""
    template = document
    for field in _TEMPLATES[resource]:
        template = template.get(field) or {}
    return template or None
