"""Resume and rerun of a kept run: its Jobs, or their unfinished indexes, as manifests."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from onejob.cli.errors import CommandError
from onejob.cli.kept_runs import RunClaim, planned_documents
from onejob.cli.manifests.loading import Manifest, manifest_from_document
from onejob.cli.run.plan import BUILT_IN_NAMESPACES, PREREQUISITES
from onejob.cli.run.settling import count_successes, settle_run
from onejob.cli.sources.base import Api, list_all
from onejob.cli.sources.params import params_of_job
from onejob.cli.sources.stored_api import StoredApi
from onejob.clock import SystemClock
from onejob.diagnosis.ended import finish_of
from onejob.objects.meta import JOBS, PODS, WORKFLOWS
from onejob.planning.job.parameter_rows import PARAMS_ANNOTATION
from onejob.planning.job.rerun import rerun
from onejob.planning.job.uncounted import with_uncounted
from onejob.planning.names import AFTER_ANNOTATION
from onejob.wire.kinds import BY_RESOURCE, Kind

#: Objects that the server of a run creates by itself.
_BUILT_IN: Final = frozenset(
    {
        *BUILT_IN_NAMESPACES,
        *("kube-root-ca.crt", "kubernetes", "system-cluster-critical", "system-node-critical"),
    }
)
_SERVER_FIELDS: Final = (
    "uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "selfLink",
)  # fmt: skip


class JobChanges(msgspec.Struct, frozen=True):
    """Options of the command line that change the Jobs of a kept run; None leaves them."""

    parallelism: int | None = None
    retries: int | None = None
    deadline_seconds: int | None = None

    def apply(self, job: dict[str, Any]) -> None:
        spec = job["spec"]
        indexed = spec.get("completionMode") == "Indexed"
        for field, value in (
            ("parallelism", self.parallelism),
            ("backoffLimitPerIndex" if indexed else "backoffLimit", self.retries),
            ("activeDeadlineSeconds", self.deadline_seconds),
        ):
            if value is not None:
                spec[field] = value


def manifests_of_run(
    claim: RunClaim,
    *,
    failed_only: bool,
    settings: Mapping[str, str],
    changes: JobChanges = JobChanges(),  # noqa: B008 (immutable)
    from_task: str = "",
) -> list[Manifest]:
    """Wait until no Pod of the kept run is left, and return the manifests of the next run.

    Empty if `failed_only` and everything has succeeded. With `from_task`, only this task of the
    run's workflow and those that depend on it run again. Raises CommandError.
    """
    folder, run = claim.folder, claim.run
    codes = settle_run(folder, run)
    api = StoredApi(folder, run)
    try:
        pods = list_all(api, BY_RESOURCE[PODS], "") if failed_only else []
        jobs = stored_jobs = list_all(api, BY_RESOURCE[JOBS], "")
        workflows: list[dict[str, Any]] = []
        planned = planned_documents(folder)
        has_workflows = any(job.workflow for job in run.jobs) or any(
            document["kind"] == "Workflow" for document in planned
        )
        if has_workflows:
            from onejob.cli.workflows.rerunning import plain_jobs, rerun_stored

            if changes != JobChanges():
                raise CommandError(
                    f"run {run.id} has a workflow, whose Jobs cannot be changed",
                    "repeat it without --parallelism, --retries and --deadline",
                )
            kind = BY_RESOURCE[WORKFLOWS]
            workflows = [
                {**found, "apiVersion": kind.api_version, "kind": kind.kind}
                for found in list_all(api, kind, "")
            ]
            jobs = stored_jobs = plain_jobs(jobs)
        kinds = [BY_RESOURCE[resource] for resource in PREREQUISITES]
        stored = {kind: list_all(api, kind, "") for kind in kinds}
        left_out = _missing_objects(planned, [*jobs, *workflows], stored)
        if left_out and settings:
            raise CommandError(
                f"--set cannot change run {run.id}: it was killed before its Jobs were created",
                "resume it without --set, or start a new run",
            )
        if failed_only:
            jobs = [with_uncounted(job, pods, codes) for job in jobs]
        documents, replaced = _jobs_to_rerun(api, jobs, failed_only, settings)
        if has_workflows:
            documents += rerun_stored(
                workflows, failed_only=failed_only, from_task=from_task, settings=settings
            )
        elif from_task:
            raise CommandError(f"run {run.id} has no workflow", "--from names a task of one")
    finally:
        api.close()
    _restore_dependencies([*documents, *left_out], stored_jobs)
    if not documents and not left_out:
        if not all(map(_is_finished, stored_jobs)) and count_successes(folder, run):
            claim.record_completion(SystemClock().now())
        return []
    for document in (*documents, *left_out):
        if document["kind"] == "Job":
            changes.apply(document)
    needed = [
        _as_manifest(kind, document)
        for kind, found in stored.items()
        for document in found
        if document["metadata"]["name"] not in _BUILT_IN
        and (kind.kind != "ConfigMap" or _namespace_and_name(document) not in replaced)
    ]
    return [
        manifest_from_document(document, source="run", number=number)
        for number, document in enumerate([*needed, *documents, *left_out], 1)
    ]


def _jobs_to_rerun(
    api: Api, jobs: Sequence[dict[str, Any]], failed_only: bool, settings: Mapping[str, str]
) -> tuple[list[dict[str, Any]], set[tuple[str, str]]]:
    """Return the Jobs to run, with their parameters; and the ConfigMaps that these replace."""
    made: list[dict[str, Any]] = []
    replaced: set[tuple[str, str]] = set()
    for job in jobs:
        namespace = job["metadata"]["namespace"]
        if name := job["metadata"].get("annotations", {}).get(PARAMS_ANNOTATION):
            replaced.add((namespace, name))
        params = params_of_job(api, job)
        again = rerun(job, params, taken=None, failed_only=failed_only, settings=settings)
        for document in again:
            document["metadata"]["namespace"] = namespace
            made.append(document)
    return made, replaced


def _missing_objects(
    planned: Sequence[dict[str, Any]],
    jobs: Sequence[dict[str, Any]],
    stored: Mapping[Kind, Sequence[dict[str, Any]]],
) -> list[dict[str, Any]]:
    """Return the planned objects that a killed run did not create; [] if no Job is missing."""
    created = {(job.get("kind", "Job"), *_namespace_and_name(job)) for job in jobs}
    created.update(
        (kind.kind, *_namespace_and_name(found)) for kind, many in stored.items() for found in many
    )
    generated = Counter(job["metadata"].get("generateName") for job in jobs)
    missing = []
    for document in planned:
        metadata = document["metadata"]
        if metadata.get("name"):
            is_missing = (document["kind"], *_namespace_and_name(document)) not in created
        else:
            is_missing = generated[metadata["generateName"]] == 0
            generated[metadata["generateName"]] -= not is_missing
        if is_missing:
            missing.append(document)
    return missing if any(document["kind"] in ("Job", "Workflow") for document in missing) else []


def _restore_dependencies(
    documents: Sequence[dict[str, Any]], stored_jobs: Sequence[dict[str, Any]]
) -> None:
    """Let Jobs wait for those dependencies that the next run repeats; the others have ended."""
    known = {_namespace_and_name(job): job for job in stored_jobs}
    jobs = [document for document in documents if document["kind"] == "Job"]
    repeated = {_namespace_and_name(job) for job in jobs if job["metadata"].get("name")}
    for job in jobs:
        place = job["metadata"].get("namespace", ""), job["metadata"].get("name", "")
        before = known.get(place, job)["metadata"].get("annotations", {}).get(AFTER_ANNOTATION)
        if before is None:
            continue
        from onejob.planning.dependencies.annotation import parse_after

        kept = [
            f"{dependency.name}:{dependency.condition}"
            for dependency in parse_after(before)
            if (place[0], dependency.name) in repeated
        ]
        annotations = job["metadata"].setdefault("annotations", {})
        annotations.pop(AFTER_ANNOTATION, None)
        if kept:
            annotations[AFTER_ANNOTATION] = ",".join(kept)


def _is_finished(job: dict[str, Any]) -> bool:
    return finish_of(job) is not None


def _namespace_and_name(document: dict[str, Any]) -> tuple[str, str]:
    return document["metadata"].get("namespace", ""), document["metadata"]["name"]


def _as_manifest(kind: Kind, document: dict[str, Any]) -> dict[str, Any]:
    """Return the object as a manifest: without status and fields that the server sets."""
    metadata = {
        name: value for name, value in document["metadata"].items() if name not in _SERVER_FIELDS
    }
    kept = {name: value for name, value in document.items() if name != "status"}
    return {**kept, "apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
