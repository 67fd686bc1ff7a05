"""A kept run once more, or what it did not finish, as manifests for another run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from onejob.cli.clients.base import Api, list_all
from onejob.cli.clients.params import params_of_job
from onejob.cli.clients.stored_api import StoredApi
from onejob.cli.errors import CommandError
from onejob.cli.run.manifests import Manifest, made_manifest
from onejob.cli.run.runs import Run, find_run, is_under_way
from onejob.objects.meta import JOBS
from onejob.planning.job.parameter_rows import PARAMS_ANNOTATION
from onejob.planning.job.rerun import rerun
from onejob.wire.kinds import BY_RESOURCE, Kind

#: What Jobs may need beside themselves.
_NEEDED: Final = ("serviceaccounts", "configmaps", "secrets", "services")
#: Every namespace has these without being asked.
_BUILT_IN: Final = frozenset({"default", "kube-root-ca.crt", "kubernetes"})
_SERVER_FIELDS: Final = (
    "uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "selfLink",
)  # fmt: skip


def manifests_of_run(
    runs: Path, wanted: str, *, failed_only: bool, settings: Mapping[str, str]
) -> tuple[Run, list[Manifest]]:
    """`wanted` is the id of a run, or the name of a Job, whose newest run is meant then. No
    manifests if everything has succeeded and `failed_only`. Raises CommandError."""
    folder, run = find_run(runs, wanted)
    if is_under_way(folder):
        raise CommandError(f"run {run.id} is still under way", "wait for its end, or stop it")
    api = StoredApi(folder, run)
    try:
        return run, _manifests(api, failed_only, settings)
    finally:
        api.close()


def _manifests(api: Api, failed_only: bool, settings: Mapping[str, str]) -> list[Manifest]:
    made: list[dict[str, Any]] = []
    replaced: set[tuple[str, str]] = set()
    for job in list_all(api, BY_RESOURCE[JOBS], ""):
        namespace = job["metadata"]["namespace"]
        if name := job["metadata"].get("annotations", {}).get(PARAMS_ANNOTATION):
            replaced.add((namespace, name))
        params = params_of_job(api, job)
        again = rerun(job, params, taken=None, failed_only=failed_only, settings=settings)
        for document in again:
            document["metadata"]["namespace"] = namespace
            made.append(document)
    if not made:
        return []
    needed = [
        _written(kind, document)
        for kind in map(BY_RESOURCE.__getitem__, _NEEDED)
        for document in list_all(api, kind, "")
        if document["metadata"]["name"] not in _BUILT_IN
        and (kind.kind != "ConfigMap" or _place(document) not in replaced)
    ]
    return [
        made_manifest(found, source="run", number=number)
        for number, found in enumerate([*needed, *made], 1)
    ]


def _place(document: dict[str, Any]) -> tuple[str, str]:
    return document["metadata"]["namespace"], document["metadata"]["name"]


def _written(kind: Kind, document: dict[str, Any]) -> dict[str, Any]:
    """As somebody may have written it."""
    metadata = {
        name: value for name, value in document["metadata"].items() if name not in _SERVER_FIELDS
    }
    kept = {name: value for name, value in document.items() if name != "status"}
    return {**kept, "apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
