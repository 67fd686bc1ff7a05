"""Preflight check: refuse to start, with a one-line reason, if prerequisites are missing."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from onejob.client.answers import Unreachable, Untrusted
from onejob.client.http import HttpClient
from onejob.cluster.permissions import AccessReview
from onejob.wire.errors import ApiError, Forbidden, NotFound, Unauthorized

_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class PreflightError(Exception):
    """A failed prerequisite: a one-line message, and a one-line remedy in `next_step`."""

    def __init__(self, message: str, next_step: str = "") -> None:
        super().__init__(message)
        self.next_step = next_step


async def check(
    client: HttpClient,
    needs: Sequence[AccessReview],
    *,
    own_namespace: str,
    manager: str,
    workflows: bool = False,
) -> str:
    """Check reachability, permissions, `spec.managedBy` and, if wanted, the kinds of workflows.

    Return the server's version. Raises PreflightError.
    """
    try:
        version = await _version(client)
        missing = await _missing_permissions(client, needs)
        if missing:
            raise PreflightError(
                f"missing permissions: {', '.join(map(str, missing))}",
                "grant them; onejob manifests prints the roles",
            )
        await _require_managed_by(client, own_namespace, manager, version)
        if workflows:
            await _require_workflows(client)
    except Untrusted as error:
        raise PreflightError(
            error.message, "check certificate-authority in the kubeconfig"
        ) from error
    except Unauthorized as error:
        raise PreflightError(
            f"the server rejected the credentials: {error.message}",
            "check that they are for this cluster and have not expired",
        ) from error
    except Unreachable as error:
        raise PreflightError(
            error.message, "check the address, and that the server is running"
        ) from error
    except ApiError as error:
        raise PreflightError(f"cannot query the server: {error.message}") from error
    return version


async def _require_workflows(client: HttpClient) -> None:
    try:
        await client.get_raw("/apis/onejob.dev/v1alpha1")
    except NotFound:
        raise PreflightError(
            "the server does not serve workflows (onejob.dev/v1alpha1)",
            "install their definitions: onejob manifests --workflows | kubectl apply -f -",
        ) from None


async def _version(client: HttpClient) -> str:
    """Return the version of the API server in words. Raises Unreachable if it is none."""
    try:
        answer = msgspec.json.decode(await client.get_raw("/version"))
    except Forbidden:
        # Some clusters restrict access to the version.
        return "of an unknown version"
    except msgspec.DecodeError as error:
        raise Unreachable(f"unexpected response, not from an API server: {error}") from error
    version = answer.get("gitVersion") if isinstance(answer, dict) else None
    if not isinstance(version, str):
        raise Unreachable("unexpected response, not from an API server: it has no gitVersion")
    return version


async def _missing_permissions(
    client: HttpClient, needs: Sequence[AccessReview]
) -> list[AccessReview]:
    answers = await asyncio.gather(*(_is_allowed(client, need) for need in needs))
    return [need for need, allowed in zip(needs, answers, strict=True) if not allowed]


async def _is_allowed(client: HttpClient, question: AccessReview) -> bool:
    body = msgspec.json.encode(question.review())
    answer: Any = msgspec.json.decode(await client.post_raw(_REVIEWS, body))
    return bool(answer.get("status", {}).get("allowed"))


async def _require_managed_by(
    client: HttpClient, namespace: str, manager: str, version: str
) -> None:
    """Raise PreflightError if the server drops `spec.managedBy`.

    A server that is too old, or has the feature gate off, drops the field silently, and its own
    controller would run every Job.
    """
    target = f"/apis/batch/v1/namespaces/{namespace}/jobs?dryRun=All"
    answer = await client.post_raw(target, msgspec.json.encode(_probe(manager)))
    created: Any = msgspec.json.decode(answer)
    if created.get("spec", {}).get("managedBy") != manager:
        raise PreflightError(
            f"the server ({version}) drops spec.managedBy of Jobs, so no Job can select onejob",
            "use Kubernetes 1.32, or 1.30 with the feature gate JobManagedBy",
        )


def _probe(manager: str) -> dict[str, Any]:
    """Return the Job whose dry-run creation shows the server's capabilities."""
    container = {"name": "c", "image": "onejob.dev/none"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"generateName": "onejob-probe-"},
        "spec": {
            "suspend": True,
            "managedBy": manager,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
        },
    }
