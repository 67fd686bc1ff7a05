"""Validation of new Jobs and of Job specs."""

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from onejob.api.kinds.job.policies import validate_failure_policy, validate_success_policy
from onejob.api.kinds.metadata import validate_metadata
from onejob.api.kinds.pod.template import validate_pod_template
from onejob.api.kinds.selecting import selects
from onejob.api.strategy import Document
from onejob.planning.names import AFTER_ANNOTATION, OOM_MEMORY_ANNOTATIONS, POD_TTL_ANNOTATION
from onejob.wire.field_errors import (
    FieldError,
    forbidden,
    invalid,
    not_supported,
    required,
    too_long,
)
from onejob.wire.labels import validate_label_selector
from onejob.wire.names import http_path_errors, label_errors, subdomain_errors

CONTROLLER_UID: Final = "batch.kubernetes.io/controller-uid"
JOB_NAME: Final = "batch.kubernetes.io/job-name"
#: Older names of these labels, without a domain; still relied upon.
OLD_CONTROLLER_UID: Final = "controller-uid"
OLD_JOB_NAME: Final = "job-name"

GENERATED_LABELS: Final = frozenset({CONTROLLER_UID, JOB_NAME, OLD_CONTROLLER_UID, OLD_JOB_NAME})

_NO_TTL_IN_TEMPLATE: Final = "may not be set in the pod template of a Job; set the Job's own"

_MAX_MANAGED_BY_LENGTH: Final = 63
_MAX_PARALLELISM_INDEXED: Final = 100_000
_MAX_FAILED_INDEXES: Final = 100_000
#: From this number on, the status of a Job could exceed the object size limit if too many indexes
#: fail.
_MANY_COMPLETIONS: Final = 100_000
_MAX_WITH_MANY_COMPLETIONS: Final = 10_000

_NON_NEGATIVE: Final = (
    "parallelism",
    "completions",
    "activeDeadlineSeconds",
    "backoffLimit",
    "ttlSecondsAfterFinished",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
    "backoffSeconds",
    "failedPodsLimit",
)


class JobOptions(Struct, frozen=True):
    """Validation options that depend on feature gates and on the stored object."""

    #: Whether the labels with a domain are required. New Jobs carry both forms of the generated
    #: labels; very old ones only those without a domain. Checked only on create.
    prefixed_labels: bool = True
    #: Whether the scheduling directives of the template may change.
    mutable_scheduling: bool = False
    #: Whether the resources of the template's containers may change.
    mutable_resources: bool = False
    #: Whether invalid selector values are tolerated: they were accepted once and may be stored.
    tolerate_bad_selector_values: bool = False


def validate_job(doc: Document, options: JobOptions) -> list[FieldError]:
    return [
        *validate_metadata(_without_inherited_labels(doc), subdomain_errors, namespaced=True),
        *_validate_generated_selector(doc, options),
        *validate_job_spec(doc["spec"], "spec", options),
        *validate_template_annotations(doc["spec"], None, "spec"),
        *validate_memory_annotations(doc, None),
        *validate_index_names(doc),
        *validate_after(doc["metadata"]),
    ]


def validate_job_spec(spec: Mapping[str, Any], path: str, options: JobOptions) -> list[FieldError]:
    errors = validate_job_spec_but_selector(spec, path)
    selector = spec.get("selector")
    labels = spec.get("template", {}).get("metadata", {}).get("labels")
    if selector is None:
        errors.append(required(f"{path}.selector"))
    else:
        errors += validate_label_selector(
            selector,
            f"{path}.selector",
            tolerate_bad_values=options.tolerate_bad_selector_values,
        )
    if selector is None or selects(selector, labels or {}) is False:
        errors.append(
            invalid(
                f"{path}.template.metadata.labels",
                labels,
                "`selector` does not match template `labels`",
            )
        )
    return errors


def validate_job_spec_but_selector(spec: Mapping[str, Any], path: str) -> list[FieldError]:
    """Return the errors of the rules that Jobs share with the job template of a CronJob."""
    errors = [
        invalid(f"{path}.{field}", spec[field], "must be greater than or equal to 0")
        for field in _NON_NEGATIVE
        if spec.get(field, 0) < 0
    ]
    if "maxFailedIndexes" in spec and "backoffLimitPerIndex" not in spec:
        errors.append(
            required(f"{path}.backoffLimitPerIndex", "when maxFailedIndexes is specified")
        )
    if "managedBy" in spec:
        errors += validate_managed_by(spec["managedBy"], f"{path}.managedBy")
    errors += _validate_completion_mode(spec, path)
    template_spec = spec.get("template", {}).get("spec", {})
    if "podFailurePolicy" in spec:
        errors += validate_failure_policy(spec, template_spec, f"{path}.podFailurePolicy")
    if "successPolicy" in spec:
        if spec.get("completionMode") == "Indexed":
            errors += validate_success_policy(spec, f"{path}.successPolicy")
        else:
            errors.append(_requires_indexes(spec, "successPolicy", path))
    errors += _validate_replacement_policy(spec, path)
    if "scheduling" in spec:
        from onejob.api.kinds.gang_rules import check_job_scheduling

        errors += check_job_scheduling(spec, path)
    errors += validate_pod_template(spec.get("template", {}), f"{path}.template")
    errors += _validate_template_of_job(spec, template_spec, f"{path}.template.spec")
    return errors


def validate_template_annotations(
    spec: Mapping[str, Any], old_spec: Mapping[str, Any] | None, path: str
) -> list[FieldError]:
    """Return an error for a TTL annotation in the Pod template.

    It stands for a field that is forbidden there. A stored annotation is tolerated, since the
    template may no longer be mutable.
    """
    if _has_ttl_annotation(spec) and not (old_spec and _has_ttl_annotation(old_spec)):
        place = f"{path}.template.metadata.annotations[{POD_TTL_ANNOTATION}]"
        return [forbidden(place, _NO_TTL_IN_TEMPLATE)]
    return []


def validate_memory_annotations(
    job: Mapping[str, Any], old: Mapping[str, Any] | None, path: str = ""
) -> list[FieldError]:
    """Return the errors of memory annotations in a Job or a job template at `path`.

    The rules are imported lazily, because few Jobs have these annotations.
    """
    if OOM_MEMORY_ANNOTATIONS.isdisjoint((job.get("metadata") or {}).get("annotations") or ()):
        return []
    from onejob.api.kinds.job.memory_growth import validate_memory_growth

    return validate_memory_growth(job, old, path)


def _has_ttl_annotation(spec: Mapping[str, Any]) -> bool:
    metadata = spec.get("template", {}).get("metadata", {})
    return POD_TTL_ANNOTATION in metadata.get("annotations", {})


def validate_index_names(doc: Document) -> list[FieldError]:
    """Return an error if the longest Pod name of an Indexed Job is no valid DNS label."""
    spec = doc["spec"]
    completions = spec.get("completions") or 0
    if spec.get("completionMode") != "Indexed" or completions <= 0:
        return []
    name = doc["metadata"].get("name", "")
    longest = f"{name}-{completions - 1}"
    if not label_errors(longest):
        return []
    text = f"will not able to create pod with invalid DNS label: {longest}"
    return [invalid("metadata.name", name, text)]


def validate_after(metadata: Mapping[str, Any]) -> list[FieldError]:
    """Return the error of the annotation `onejob.dev/after`.

    The parser is imported lazily, because few Jobs have dependencies.
    """
    text = metadata.get("annotations", {}).get(AFTER_ANNOTATION)
    if text is None:
        return []
    from onejob.planning.dependencies.annotation import InvalidAfter, parse_after

    try:
        parse_after(text, metadata.get("name", ""))
    except InvalidAfter as error:
        return [invalid(f"metadata.annotations[{AFTER_ANNOTATION}]", text, str(error))]
    return []


def _without_inherited_labels(doc: Document) -> Mapping[str, Any]:
    """Return the metadata without the generated labels that a Job inherited from its template.

    The user did not set them, so errors in them are reported only once, for the template.
    """
    metadata: dict[str, Any] = doc["metadata"]
    labels = metadata.get("labels")
    if not labels or labels.keys().isdisjoint(GENERATED_LABELS):
        return metadata
    generated = doc["spec"].get("template", {}).get("metadata", {}).get("labels", {})
    own = {
        key: value
        for key, value in labels.items()
        if key not in GENERATED_LABELS or generated.get(key) != value
    }
    return {**metadata, "labels": own}


def _validate_generated_selector(doc: Document, options: JobOptions) -> list[FieldError]:
    spec, metadata = doc["spec"], doc["metadata"]
    if spec.get("manualSelector") or "selector" not in spec:
        return []
    errors = []
    uid, name = metadata.get("uid", ""), metadata.get("name", "")
    if not uid:
        errors.append(required("metadata.uid"))
    expected = {OLD_CONTROLLER_UID: uid, OLD_JOB_NAME: name}
    if options.prefixed_labels:
        expected |= {CONTROLLER_UID: uid, JOB_NAME: name}
    labels = spec.get("template", {}).get("metadata", {}).get("labels", {})
    for key, value in expected.items():
        path = f"spec.template.metadata.labels[{key}]"
        if key not in labels:
            errors.append(required(path, f"must be '{value}'"))
        elif labels[key] != value:
            errors.append(invalid(path, labels, f"must be '{value}'"))
    if selects(spec["selector"], expected) is False:
        errors.append(invalid("spec.selector", spec["selector"], "`selector` not auto-generated"))
    return errors


def validate_managed_by(manager: str, path: str) -> list[FieldError]:
    if not manager:
        return [required(path)]
    domain, _, rest = manager.partition("/")
    if not domain or not rest:
        errors = [invalid(path, manager, 'must be a domain-prefixed path (such as "acme.io/foo")')]
    else:
        errors = [invalid(path, domain, text) for text in subdomain_errors(domain)]
        errors += [invalid(path, rest, text) for text in http_path_errors(rest)]
    if len(manager.encode()) > _MAX_MANAGED_BY_LENGTH:
        errors.append(too_long(path, _MAX_MANAGED_BY_LENGTH))
    return errors


def _validate_completion_mode(spec: Mapping[str, Any], path: str) -> list[FieldError]:
    mode = spec.get("completionMode", "NonIndexed")
    if mode == "Indexed":
        return _validate_indexed(spec, path)
    if mode != "NonIndexed":
        return [not_supported(f"{path}.completionMode", mode, ["NonIndexed", "Indexed"])]
    return [
        _requires_indexes(spec, field, path)
        for field in ("backoffLimitPerIndex", "maxFailedIndexes")
        if field in spec
    ]


def _requires_indexes(spec: Mapping[str, Any], field: str, path: str) -> FieldError:
    return invalid(f"{path}.{field}", spec[field], "requires indexed completion mode")


def _validate_indexed(spec: Mapping[str, Any], path: str) -> list[FieldError]:
    errors = []
    completions = spec.get("completions")
    parallelism, failed = spec.get("parallelism", 0), spec.get("maxFailedIndexes", 0)
    if completions is None:
        errors.append(required(f"{path}.completions", "when completion mode is Indexed"))
    if parallelism > _MAX_PARALLELISM_INDEXED:
        errors.append(
            invalid(
                f"{path}.parallelism",
                parallelism,
                f"must be less than or equal to {_MAX_PARALLELISM_INDEXED} "
                "when completion mode is Indexed",
            )
        )
    if completions is not None and failed > completions:
        errors.append(
            invalid(f"{path}.maxFailedIndexes", failed, "must be less than or equal to completions")
        )
    if failed > _MAX_FAILED_INDEXES:
        errors.append(
            invalid(
                f"{path}.maxFailedIndexes",
                failed,
                f"must be less than or equal to {_MAX_FAILED_INDEXES}",
            )
        )
    if (completions or 0) > _MANY_COMPLETIONS and "backoffLimitPerIndex" in spec:
        errors += _validate_many_completions(spec, path)
    return errors


def _validate_many_completions(spec: Mapping[str, Any], path: str) -> list[FieldError]:
    errors = []
    if "maxFailedIndexes" not in spec:
        errors.append(
            required(
                f"{path}.maxFailedIndexes",
                f"must be specified when completions is above {_MANY_COMPLETIONS}",
            )
        )
    for field in ("parallelism", "maxFailedIndexes"):
        value = spec.get(field, 0)
        if value > _MAX_WITH_MANY_COMPLETIONS:
            errors.append(
                invalid(
                    f"{path}.{field}",
                    value,
                    f"must be less than or equal to {_MAX_WITH_MANY_COMPLETIONS} when "
                    f"completions are above {_MANY_COMPLETIONS} and used with backoff limit "
                    "per index",
                )
            )
    return errors


def _validate_replacement_policy(spec: Mapping[str, Any], path: str) -> list[FieldError]:
    policy = spec.get("podReplacementPolicy")
    if policy is None:
        return []
    supported = ["Failed"]
    if "podFailurePolicy" not in spec:
        supported.append("TerminatingOrFailed")
    if policy in supported:
        return []
    return [not_supported(f"{path}.podReplacementPolicy", policy, supported)]


def _validate_template_of_job(
    spec: Mapping[str, Any], template_spec: Mapping[str, Any], path: str
) -> list[FieldError]:
    errors = []
    if "ttlSecondsAfterFinished" in template_spec:
        errors.append(
            forbidden(
                f"{path}.ttlSecondsAfterFinished",
                _NO_TTL_IN_TEMPLATE,
            )
        )
    policy = template_spec.get("restartPolicy", "")
    if policy in ("", "Always"):
        errors.append(required(f"{path}.restartPolicy", 'valid values: "OnFailure", "Never"'))
    elif policy not in ("OnFailure", "Never"):
        errors.append(not_supported(f"{path}.restartPolicy", policy, ["OnFailure", "Never"]))
    elif "podFailurePolicy" in spec and policy != "Never":
        errors.append(
            invalid(
                f"{path}.restartPolicy",
                policy,
                'only "Never" is supported when podFailurePolicy is specified',
            )
        )
    return errors
