"""Plan of a run: the objects to create, validated before anything is started."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from onejob.cli.errors import CommandError
from onejob.cli.manifests.checking import manifest_problems
from onejob.cli.manifests.loading import STDIN, WRITABLE_KINDS, InvalidManifests, Manifest, Problem
from onejob.gates import FeatureGates
from onejob.objects.meta import CRONJOBS, CRONWORKFLOWS, JOBS, NAMESPACES, WORKFLOWS
from onejob.planning.names import BUILT_IN_MANAGER
from onejob.planning.queue.membership import PRIORITY_CLASSES

if TYPE_CHECKING:
    from onejob.node.images import Images

#: Resources that a run creates for its Jobs, in the order of creation: a Job comes last, so that
#: its prerequisites exist.
PREREQUISITES: Final = (
    NAMESPACES,
    PRIORITY_CLASSES,
    "serviceaccounts",
    "configmaps",
    "secrets",
    "services",
)
_STORAGE: Final = (
    "storageclasses.storage.k8s.io",
    "persistentvolumes",
    "persistentvolumeclaims",
)
_RUNNABLE: Final = (*PREREQUISITES, *_STORAGE, JOBS, WORKFLOWS)
_SCHEDULED: Final = (CRONJOBS, CRONWORKFLOWS)
BUILT_IN_NAMESPACES: Final = ("default", "kube-system", "kube-public", "kube-node-lease")


class PlannedObject(msgspec.Struct, frozen=True):
    """One object to create."""

    resource: str
    namespace: str
    document: dict[str, Any]


class RunPlan(msgspec.Struct, frozen=True):
    #: In the order of creation; Jobs come last.
    objects: tuple[PlannedObject, ...]
    #: One notice for each object that is validated, but not created by a run.
    notices: tuple[str, ...] = ()
    jobs: tuple[PlannedObject, ...] = msgspec.field(default=())
    workflows: tuple[PlannedObject, ...] = msgspec.field(default=())

    @property
    def uses_claims(self) -> bool:
        """Return whether the run has claims, or Pods that bring their own."""
        return any(item.resource in _STORAGE for item in self.objects) or any(
            volume.get("ephemeral")
            for item in (*self.jobs, *self.workflows)
            for _, job in _job_specs(item.document)
            for volume in job["template"]["spec"].get("volumes") or ()
        )


def plan_run(
    manifests: Sequence[Manifest],
    namespace: str,
    gates: FeatureGates,
    now: datetime,
    *,
    check_only: bool = False,
    images: "Images | None" = None,
) -> RunPlan:
    """Validate all manifests and return the objects to create. Raises CommandError.

    `namespace` is the default for manifests without one. Without `check_only` there must be a Job
    among the manifests. Objects that a run does not create are validated as well. `images` maps
    images to local commands, for runtimes that do not run images.
    """
    if not check_only and manifests and all(m.kind.stored_only for m in manifests):
        # Validation errors would only make users complete manifests that have no effect anyway.
        raise CommandError(*_nothing_to_run(manifests, manifests))
    problems = [
        problem for m in manifests for problem in _problems(m, namespace, gates, now, images)
    ]
    if problems:
        raise InvalidManifests(problems)
    _refuse_duplicates([_planned_object(manifest, namespace) for manifest in manifests])
    left_out = [manifest for manifest in manifests if manifest.kind.resource not in _RUNNABLE]
    wanted = [_planned_object(m, namespace) for m in manifests if m.kind.resource in _RUNNABLE]
    jobs = tuple(item for item in wanted if item.resource == JOBS)
    workflows = tuple(item for item in wanted if item.resource == WORKFLOWS)
    if absent := _absent_dependencies(manifests, namespace):
        raise InvalidManifests(absent)
    if not jobs and not workflows and not check_only:
        raise CommandError(*_nothing_to_run(manifests, left_out))
    objects = sorted(wanted, key=lambda item: _RUNNABLE.index(item.resource))
    return RunPlan(
        (*_missing_namespaces(objects), *objects),
        tuple(_left_out_text(manifest) for manifest in left_out),
        jobs,
        workflows,
    )


def _absent_dependencies(manifests: Sequence[Manifest], namespace: str) -> list[Problem]:
    """Return the Jobs that would never start: they wait for Jobs that are not part of the run."""
    from onejob.planning.names import AFTER_ANNOTATION

    jobs = [manifest for manifest in manifests if manifest.kind.resource == JOBS]
    present = {(_namespace(job, namespace), job.name) for job in jobs}
    problems = []
    for job in jobs:
        text = (job.document["metadata"].get("annotations") or {}).get(AFTER_ANNOTATION)
        if text is None:
            continue
        from onejob.planning.dependencies.annotation import parse_after

        problems += [
            job.problem(
                f"metadata.annotations[{AFTER_ANNOTATION}]",
                f"waits for job {dependency.name}, which is not part of this run",
            )
            for dependency in parse_after(text)
            if (_namespace(job, namespace), dependency.name) not in present
        ]
    return problems


def has_limits(planned: PlannedObject) -> bool:
    """Return whether the object has Jobs whose containers have memory or CPU limits."""
    if planned.resource not in (JOBS, WORKFLOWS):
        return False
    return any(
        name in (container.get("resources") or {}).get("limits", ())
        for spec in (job["template"]["spec"] for _, job in _job_specs(planned.document))
        for kind in ("initContainers", "containers")
        for container in spec.get(kind) or ()
        for name in ("memory", "cpu")
    )


def _left_out_text(manifest: Manifest) -> str:
    kind = manifest.kind.kind
    if manifest.kind.stored_only:
        return (
            f"{kind.lower()}/{_name(manifest)} is checked but not created: it has no effect in "
            "a run"
        )
    why = (
        "schedules require a server" if manifest.kind.resource in _SCHEDULED else "it is not a Job"
    )
    return (
        f"{kind.lower()}/{_name(manifest)} is checked but not run: {why} (use onejob serve, "
        f"then onejob apply -f {_display_name(manifest.source)})"
    )


def _name(manifest: Manifest) -> str:
    return manifest.name or f"{manifest.document['metadata']['generateName']}..."


def server_problems(
    manifest: Manifest, namespace: str, gates: FeatureGates, now: datetime
) -> list[Problem]:
    """Return the errors for which an API server would reject the manifest."""
    if manifest.kind.kind not in WRITABLE_KINDS:
        return [manifest.problem("kind", f"onejob run does not create a {manifest.kind.kind}")]
    return manifest_problems(manifest, _namespace(manifest, namespace), gates, now)


def _problems(
    manifest: Manifest,
    namespace: str,
    gates: FeatureGates,
    now: datetime,
    images: "Images | None",
) -> list[Problem]:
    """Return the API server's errors, and reasons why a run could never finish the Job."""
    found = server_problems(manifest, namespace, gates, now)
    if not found and manifest.kind.resource in (JOBS, WORKFLOWS):
        found = _never_starts(manifest)
        for path, spec in _job_specs(manifest.document):
            found += _never_ends(manifest, path, spec, gates)
            if images is not None:
                found += _without_program(manifest, path, spec, images)
    return found


def _job_specs(document: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return path and spec of a Job, or of the Jobs of a Workflow's tasks."""
    spec = document["spec"]
    if document["kind"] == "Job":
        return [("spec", spec)]
    return [
        (f"spec.{field}[{number}].template.spec", task["template"]["spec"])
        for field in ("tasks", "finally")
        for number, task in enumerate(spec.get(field) or ())
    ]


def _without_program(
    manifest: Manifest, path: str, job: dict[str, Any], images: "Images"
) -> list[Problem]:
    """Return containers that no retry could start: they have neither command nor image mapping."""
    from onejob.node.images import NoStandIn
    from onejob.objects.pod_spec import Container

    found = []
    spec = job["template"]["spec"]
    for kind in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(kind) or ()):
            if container.get("command"):
                continue
            image = container.get("image", "")
            try:
                images.command_line(Container(name=container["name"], image=image))
            except NoStandIn:
                text = (
                    "the container has no command, and images are not run by this runtime "
                    f"({_ways_to_run(image)})"
                )
                field = f"{path}.template.spec.{kind}[{index}].image"
                found.append(manifest.problem(field, text))
    return found


def _ways_to_run(image: str) -> str:
    """Return what to do about an image; the engine comes first if it is installed."""
    from shutil import which

    others = f"add a command, or map the image with --image-map {image}=COMMAND"
    if which("podman"):
        return f"use --runtime podman, which is installed; {others}"
    return f"{others}; with podman installed: use --runtime podman"


def _never_ends(
    manifest: Manifest, path: str, spec: dict[str, Any], gates: FeatureGates
) -> list[Problem]:
    """Return reasons why a Job would wait forever.

    It needs a change by another client, and a run serves no API to others.
    """
    if spec.get("suspend") and spec.get("completions") != 0:
        text = "a suspended Job would never finish (set it to false, or use onejob serve)"
        return [manifest.problem(f"{path}.suspend", text)]
    # With the gate disabled, the field is dropped and the Job is run here.
    manager = spec.get("managedBy") if gates.enabled("JobManagedBy") else None
    if manager is not None and manager != BUILT_IN_MANAGER:
        text = f"onejob run does not run Jobs managed by {manager} (use onejob serve)"
        return [manifest.problem(f"{path}.managedBy", text)]
    if spec.get("parallelism") == 0 and spec.get("completions") != 0:
        text = "no Pod would start (set it to 1 or more, or use onejob serve)"
        return [manifest.problem(f"{path}.parallelism", text)]
    return []


def _never_starts(manifest: Manifest) -> list[Problem]:
    """Return reasons why a workflow would start no task in a run."""
    if manifest.kind.resource != WORKFLOWS:
        return []
    from onejob.planning.workflow.planner import MANAGER

    spec = manifest.document["spec"]
    if spec.get("suspend"):
        text = "a suspended Workflow would never finish (set it to false, or use onejob serve)"
        return [manifest.problem("spec.suspend", text)]
    manager = spec.get("managedBy")
    if manager not in (None, "", MANAGER):
        text = f"onejob run does not run Workflows managed by {manager} (use onejob serve)"
        return [manifest.problem("spec.managedBy", text)]
    return []


def _planned_object(manifest: Manifest, namespace: str) -> PlannedObject:
    return PlannedObject(manifest.kind.resource, _namespace(manifest, namespace), manifest.document)


def _namespace(manifest: Manifest, default: str) -> str:
    if not manifest.kind.namespaced:
        return ""
    metadata = manifest.document.get("metadata")
    own = metadata.get("namespace") if isinstance(metadata, dict) else None
    return own if isinstance(own, str) and own else default


def _missing_namespaces(objects: Sequence[PlannedObject]) -> list[PlannedObject]:
    given = {
        item.document["metadata"].get("name") for item in objects if item.resource == NAMESPACES
    }
    given.update(BUILT_IN_NAMESPACES)
    named = dict.fromkeys(item.namespace for item in objects if item.namespace)
    return [
        PlannedObject(
            NAMESPACES,
            "",
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}},
        )
        for name in named
        if name not in given
    ]


def _refuse_duplicates(objects: Sequence[PlannedObject]) -> None:
    seen: set[tuple[str, str, str]] = set()
    for item in objects:
        name = item.document["metadata"].get("name")
        if name is None:
            continue
        key = (item.resource, item.namespace, name)
        if key in seen:
            kind = item.document["kind"].lower()
            place = f" in namespace {item.namespace}" if item.namespace else ""
            raise CommandError(f"duplicate object {kind}/{name}{place}", "use different names")
        seen.add(key)


def _nothing_to_run(manifests: Sequence[Manifest], left_out: Sequence[Manifest]) -> tuple[str, str]:
    sources = ", ".join(dict.fromkeys(_display_name(manifest.source) for manifest in manifests))
    cron = [manifest for manifest in left_out if manifest.kind.resource in _SCHEDULED]
    if cron:
        files = " ".join(dict.fromkeys(f"-f {_display_name(manifest.source)}" for manifest in cron))
        return (
            f"{sources}: a {cron[0].kind.kind} requires a server",
            f"use onejob serve, then onejob apply {files}; --dry-run=client checks the file",
        )
    idle = dict.fromkeys(item.kind.kind for item in left_out if item.kind.stored_only)
    if idle and len(left_out) == len(manifests):
        return (
            f"{sources}: no Job to run; kind {', '.join(idle)} has no effect in a run",
            "onejob runs Jobs: kind: Job, apiVersion: batch/v1",
        )
    return f"{sources}: no Job to run", "add a Job, or use onejob serve and onejob apply"


def _display_name(source: str) -> str:
    return "<stdin>" if source == STDIN else source
