"""Defaults of Jobs, and of the parts that a CronJob's job template shares."""

from typing import Any, Final

from onejob.api.kinds.job.original_status import keep_shown_fields_out
from onejob.api.kinds.pod.defaults import default_pod_template
from onejob.api.strategy import Document

_MAX_INT32: Final = 2**31 - 1


def default_job_spec(doc: Document) -> None:
    """Set the defaults of a Job's spec in place."""
    spec = doc.setdefault("spec", {})
    default_job_template_spec(spec)
    # A single run only if both are unset; parallelism alone means a work queue.
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    if "backoffLimit" not in spec:
        spec["backoffLimit"] = _MAX_INT32 if "backoffLimitPerIndex" in spec else 6
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("manualSelector", False)
    if "podReplacementPolicy" not in spec:
        spec["podReplacementPolicy"] = (
            "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed"
        )


def default_job_metadata(doc: Document) -> None:
    """Set the defaults that depend on more than the spec: labels and status."""
    _inherit_labels(doc)
    if status := doc.get("status"):
        keep_shown_fields_out(status)


def default_cronjob(doc: Document) -> None:
    """Set the defaults of a CronJob's spec in place."""
    spec = doc.setdefault("spec", {})
    if not spec.get("concurrencyPolicy"):
        spec["concurrencyPolicy"] = "Allow"
    spec.setdefault("suspend", False)
    spec.setdefault("successfulJobsHistoryLimit", 3)
    spec.setdefault("failedJobsHistoryLimit", 1)
    # The remaining defaults are set when a Job is created from the template.
    template = spec.setdefault("jobTemplate", {})
    template.setdefault("metadata", {})
    default_job_template_spec(template.setdefault("spec", {}))


def default_job_template_spec(spec: dict[str, Any]) -> None:
    default_pod_template(spec)
    for rule in spec.get("podFailurePolicy", {}).get("rules", ()):
        for pattern in rule.get("onPodConditions", ()):
            if not pattern.get("status"):
                pattern["status"] = "True"


def _inherit_labels(doc: Document) -> None:
    """Give a Job without labels the labels of its template.

    Both share the same dict on purpose, so that the labels that `prepare_create` generates for the
    template appear on the Job as well, and only on Jobs without labels of their own.
    """
    metadata = doc.setdefault("metadata", {})
    if metadata.get("labels"):
        return
    labels = doc["spec"]["template"].get("metadata", {}).get("labels")
    if labels:
        metadata["labels"] = labels
